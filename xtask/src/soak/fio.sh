# Random writes of all sizes, read back and compared: through the kernel's pages, past them, and through a mapping.
command -v fio >/dev/null || { echo "fio is missing; install it: apt-get install fio"; exit 1; }
run() {
    fio --directory="$M1" --size=32m --numjobs=2 --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_backlog=256 --randseed="$SEED" \
        --time_based --runtime="$((SECONDS_MAX / 10 + 1))" --output="$1.log" --name="$@" || { tail -n 20 "$1.log"; exit 1; }
}
run pages --rw=randrw --bsrange=512-64k --ioengine=psync
run direct --rw=randrw --bs=4k --ioengine=psync --direct=1
run mapped --rw=randrw --bs=4k --ioengine=mmap
run synced --rw=randwrite --bs=16k --ioengine=psync --fsync=16
run sequential --rw=write --bs=1m --ioengine=psync --end_fsync=1
