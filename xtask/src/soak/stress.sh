# stress-ng's filesystem stressors, one after the other, each with what it verifies. A stressor that fails on the local disk of this machine too says
# nothing about the mount.
command -v stress-ng >/dev/null || { echo "stress-ng is missing; install it: apt-get install stress-ng"; exit 1; }
# Not files of this filesystem, or the machine's own: they would measure nothing here, or harm others.
left_out='binderfs|efivar|procfs|sysfs|dev-shm|quota|ramfs|loop|mknod'
list=$(stress-ng --class filesystem? 2>&1 | sed 's/.*stressors://' | tr ' ' '\n' | grep -Ev "^($left_out|)$")
count=$(wc -l <<< "$list")
each=$((SECONDS_MAX / count + 1))
failed=
for stressor in $list; do
    mkdir -p "$M1/$stressor" "$stressor"
    run() { timeout --kill-after=20 $((each * 3 + 60)) stress-ng --"$stressor" 2 --temp-path "$1" --timeout "$each" --verify > "$stressor.log" 2>&1; }
    if ! run "$M1/$stressor"; then
        cp "$stressor.log" "$stressor.mount.log"
        if run "$PWD/$stressor"; then
            echo "$stressor fails on the mount and not on the local disk:"
            grep -E 'fail|error' "$stressor.mount.log" | head -n 5 || tail -n 5 "$stressor.mount.log"
            failed="$failed $stressor"
        fi
    fi
    # What was killed may be at work yet; the next one has a directory of its own.
    rm -rf "${M1:?}/$stressor" "$stressor" || echo "$stressor left something behind"
done
echo "$count stressors, $each s each; failed:${failed:- none}"
[ -z "$failed" ]
