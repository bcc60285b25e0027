# Tests of xfstests one by one, each with a limit of time, on two clusters of their own. In a mount namespace: what is mounted here nobody else sees.
#
# BUILT: xfstests, built. WORK: an empty directory. PROGRAM: bearing. KIND: bearing, or passthrough_ll with PASSTHROUGH, its program. OPTIONS: how to mount.
# TESTS: a file with a test a line. SECONDS_EACH: how long one may take. TOOLS: the directory with mount and df.
# Prints a line for each test: its name, passed, failed, timeout or notrun, its seconds, and why it was not run.

export PATH=$TOOLS:$PATH
mkdir -p "$WORK"/{logs,mnt-test,mnt-scratch,results}
cp /etc/passwd /etc/group /etc/shadow "$WORK"
uid=61001
for user in fsgqa fsgqa2 123456-fsgqa; do
    if ! id "$user" > /dev/null 2>&1; then
        echo "$user:x:$uid:$uid::/tmp:/bin/bash" >> "$WORK/passwd"
        echo "$user:x:$uid:" >> "$WORK/group"
        echo "$user:!:1::::::" >> "$WORK/shadow"
    fi
    uid=$((uid + 1))
done
for file in passwd group shadow; do mount --bind "$WORK/$file" "/etc/$file"; done

name=$(basename "$WORK")
cat > "$WORK/local.config" <<END
export TEST_DEV=$name-test
export TEST_DIR=$WORK/mnt-test
export SCRATCH_DEV=$name-scratch
export SCRATCH_MNT=$WORK/mnt-scratch
export FSTYP=fuse
export FUSE_SUBTYP=.$KIND
export RESULT_BASE=$WORK/results
END
export HOST_OPTIONS=$WORK/local.config

begin() {
    for cluster in test scratch; do
        case $KIND in
            bearing)
                "$PROGRAM" up --detach --metadata 1 --data 2 --data-copies 2 --dir "$WORK/$cluster" > /dev/null ;;
            *) mkdir -p "$WORK/$cluster" ;;
        esac
    done
}

finish() {
    umount -l "$WORK/mnt-test" "$WORK/mnt-scratch" 2> /dev/null || true
    # Mounts that a test left behind: their command lines name this directory.
    for line in /proc/[0-9]*/cmdline; do
        [ -r "$line" ] || continue
        if tr '\0' ' ' 2> /dev/null < "$line" | grep -q "^[^ ]* mount .*$WORK/"; then
            process=${line#/proc/}
            kill -9 "${process%/cmdline}" 2> /dev/null || true
        fi
    done
    [ "$KIND" != bearing ] || for cluster in test scratch; do
        "$PROGRAM" down --dir "$WORK/$cluster" > /dev/null 2>&1 || true
    done
}

trap finish EXIT
begin
cd "$BUILT"
while read -r test; do
    log=$WORK/logs/${test//\//-}.log
    before=$SECONDS code=0
    setsid timeout --kill-after 5 "$SECONDS_EACH" ./check "$test" > "$log" 2>&1 < /dev/null || code=$?
    why=""
    if [ "$code" = 124 ] || [ "$code" = 137 ]; then
        result=timeout
        finish
        begin
    elif grep -q '^Passed all 1 tests' "$log"; then
        result=passed
        if grep -q "^Not run: $test" "$log"; then
            result=notrun
            why=$(head -1 "$WORK/results/$test.notrun" 2> /dev/null || true)
        fi
    else
        result=failed
    fi
    echo "$test $result $((SECONDS - before)) $why"
done < "$TESTS"
