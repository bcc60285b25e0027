# `make` alone prints what there is. The work is done by `cargo xtask`; this file installs what that needs.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help test demo down deps build fmt

# Debian packages: fuse3 has fusermount3, attr has setfattr, gcc links Rust and compiles blake3's assembly.
PACKAGES := fuse3 attr gcc libc6-dev pkg-config
DENY_VERSION := 0.20.2

# Where rustup puts cargo, for shells that have not read its settings.
export PATH := $(PATH):$(HOME)/.cargo/bin

help: ## print this
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

test: deps ## install what is missing, then everything a change must pass
	@cargo xtask ci

demo: deps build ## start a cluster, mount it at ./mnt, fill it, verify it, leave it running
	@cargo xtask demo

down: ## stop the demo's cluster and unmount it
	@cargo xtask down

deps: ## install what is missing: Debian packages, rustfmt, clippy, cargo-deny
	@start=$$SECONDS; \
	as_root=; if [ "$$(id -u)" != 0 ]; then as_root=sudo; fi; \
	missing=; \
	for package in $(PACKAGES); do \
	    [ "$$(dpkg-query -W -f '$${Status}' "$$package" 2>/dev/null)" = 'install ok installed' ] \
	        || missing="$$missing $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
	    command -v apt-get >/dev/null || { echo "deps: install these by hand (no apt-get here):$$missing"; exit 1; }; \
	    echo "deps: installing$$missing"; \
	    [ -z "$$as_root" ] || command -v sudo >/dev/null || { echo "deps: not root and no sudo; ask somebody to install:$$missing"; exit 1; }; \
	    $$as_root apt-get update -qq; \
	    $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi; \
	echo "deps: Debian packages, $$((SECONDS - start)) s"; start=$$SECONDS; \
	command -v cargo >/dev/null || { echo "deps: there is no cargo; install Rust with rustup, then try again"; exit 1; }; \
	for part in rustfmt clippy; do \
	    command -v "cargo-$${part/rustfmt/fmt}" >/dev/null && cargo "$${part/rustfmt/fmt}" --version >/dev/null 2>&1 && continue; \
	    echo "deps: installing $$part"; rustup component add "$$part"; \
	done; \
	if ! cargo deny --version >/dev/null 2>&1; then \
	    echo "deps: building cargo-deny $(DENY_VERSION), unoptimised; about a minute on two cores"; \
	    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_DEBUG=false \
	        cargo install cargo-deny --version $(DENY_VERSION) --locked --quiet; \
	fi; \
	echo "deps: Rust tools, $$((SECONDS - start)) s"

build: deps ## build all programs
	@start=$$SECONDS; cargo build --workspace; echo "build: $$((SECONDS - start)) s"

fmt: ## format all sources
	@cargo fmt --all
