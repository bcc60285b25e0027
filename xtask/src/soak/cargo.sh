# A small crate, built on the mount, and built again after a change.
command -v cargo >/dev/null || { echo "cargo is missing; install Rust with rustup"; exit 1; }
mkdir -p "$M1/small/src"
cd "$M1/small"
# A workspace of its own: the mount lies below the project's.
printf '[package]\nname = "small"\nedition = "2024"\n\n[workspace]\n' > Cargo.toml
for number in $(seq 1 20); do
    echo "pub mod part_$number;" >> src/lib.rs
    echo "pub fn sum(values: &[u64]) -> u64 { values.iter().map(|value| value * $number).sum() }" > "src/part_$number.rs"
done
export CARGO_TARGET_DIR="$M1/small/target"
cargo build --quiet --offline
cargo test --quiet --offline
[ -z "$(cargo build --offline 2>&1 | grep Compiling)" ]
echo "pub const MORE: u64 = 1;" >> src/part_7.rs
cargo build --offline 2>&1 | grep -q Compiling
