# pjdfstest as root on the mount and, with the same configuration, on the local disk: none may fail on the mount, and no more may be skipped.
#
# Skipped on both: what only other systems have, and what needs the filesystem to be mounted read-only in between (remounts are not allowed here).
# One test skips every FUSE filesystem: the C library says LINK_MAX only for kinds of filesystem that it knows. So it is done here by hand.

version=0.2.2
tools=$ROOT/target/tools
pjdfstest=$tools/bin/pjdfstest
[ "$(id -u)" = 0 ] || { echo "pjdfstest: needs root"; exit 1; }
if [ "$("$pjdfstest" --version 2>/dev/null)" != "pjdfstest $version" ]; then
    cargo install --quiet --version "$version" --root "$tools" --target-dir "$tools/build" pjdfstest
fi

# Two users that every Linux has, each with its own group as the system calls it.
entry() { printf '["%s", "%s"]' "$1" "$(id -gn "$1")"; }
cat > pjdfstest.toml <<END
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [$(entry nobody), $(entry daemon)]
END

# Some tests need a second filesystem: each is the other's.
mkdir -p local
test_on() { # NAME DIRECTORY OTHER
    NO_COLOR=1 "$pjdfstest" -c pjdfstest.toml -p "$2" -s "$3" > "$1.log" 2>&1 || true
    grep '^Summary' "$1.log" || { echo "pjdfstest broke off on $1:"; tail -5 "$1.log"; exit 1; }
    awk '$NF == "skipped" { print $1 }' "$1.log" | sort > "$1.skipped"
    awk '$NF == "FAILED" { print $1 }' "$1.log" | sort > "$1.failed"
    echo "  $1 ($(stat -f -c %T "$2")): $(wc -l < "$1.failed") failed, $(wc -l < "$1.skipped") skipped"
}
test_on local "$PWD/local" "$M1"
test_on mount "$M1" "$PWD/local"

links_end() { # DIRECTORY: as many names as a file may have, then EMLINK; by several processes, because one would wait for each
    perl -MErrno=EMLINK -e '
        my $directory = "$ARGV[0]/links";
        mkdir $directory or die "mkdir: $!";
        open(my $file, ">", "$directory/first") or die "create: $!";
        for my $process (1 .. 16) {
            next if fork;
            my $count = 0;
            $count++ while $count < 200_000 && link("$directory/first", "$directory/$process-$count");
            $!{EMLINK} or die "link number $count of process $process: $!\n";
            exit 0;
        }
        my $failed = 0;
        while (wait != -1) { $failed ||= $? }
        my $links = (stat "$directory/first")[3];
        opendir(my $entries, $directory) or die "list: $!";
        my $names = grep { !/^\./ } readdir $entries;
        die "links do not end with EMLINK\n" if $failed;
        die "$links links, but $names names\n" if $links != $names;
        print "  links end with EMLINK at $links\n"' "$1"
}
if grep -qx link::link_count_max mount.skipped; then
    links_end "$M1"
    sed -i '/^link::link_count_max$/d' mount.skipped
fi

more=$(comm -23 mount.skipped local.skipped)
if [ -s mount.failed ] || [ -n "$more" ]; then
    echo "failed on the mount:"; sed 's/^/  /' mount.failed
    echo "skipped on the mount alone:"; echo "$more" | sed 's/^/  /'
    grep -A 2 'FAILED$' mount.log || true
    exit 1
fi
