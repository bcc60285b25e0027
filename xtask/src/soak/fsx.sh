# fsx (cargo install fsx) with every operation it has. Alternating: the name that it opens is a link that leads to one mount or the other, ever in
# turn; what close-to-open promises is what its close and open ask for.
PATH=$PATH:$HOME/.cargo/bin
command -v fsx >/dev/null || { echo "fsx is missing; install it: cargo install fsx --version 0.3.2"; exit 1; }
# min: posix_fallocate of nothing is EINVAL on every filesystem, and fsx takes that for a lack of support (seed 8, with ext4 too).
cat > fsx.toml <<'TOML'
flen = 262144
[opsize]
max = 65536
min = 1
[weights]
close_open = 5
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 5
invalidate = 3
fsync = 1
fdatasync = 1
posix_fallocate = 3
punch_hole = 5
sendfile = 3
posix_fadvise = 2
copy_file_range = 5
TOML
# In parts: fsx keeps a mapping for each mapped read and ends at the kernel's limit of 65,530, on a local disk too.
PART=100000
parts() {
    local left=$OPERATIONS seed=$SEED
    while [ "$left" -gt 0 ]; do
        fsx -q -f fsx.toml -N $((left < PART ? left : PART)) -S "$seed" -P . "$1"
        left=$((left - PART)) seed=$((seed + 1))
    done
}
parts "$M1/fsx"
ln -s "$M1/turns" turns
(
    while sleep 0.003; do
        for mount in "$M2" "$M1"; do
            ln -s "$mount/turns" turns.new && mv -T turns.new turns
        done
    done
) &
turning=$!
trap 'kill $turning' EXIT
sed -i 's/^close_open = .*/close_open = 30/' fsx.toml
parts turns
