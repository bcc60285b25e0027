# The project's own repository, with its history.
git clone --quiet --no-hardlinks "$ROOT" "$M1/repository"
cd "$M1/repository"
git fsck --full --no-dangling
git repack -a -d --quiet
git gc --quiet
git checkout --quiet -b soak
for number in $(seq 1 30); do
    echo "$number" > "soak-$number"
    git add "soak-$number"
    git -c user.name=soak -c user.email=soak@localhost commit --quiet -m "$number"
done
git rebase --quiet HEAD~10
cd "$M2/repository"
git fsck --full --no-dangling
[ -z "$(git status --porcelain)" ]
[ "$(git rev-parse HEAD)" = "$(git -C "$M1/repository" rev-parse HEAD)" ]
git -C "$M2" clone --quiet repository again
diff -r --exclude=.git "$M1/repository" "$M2/again"
# Two mounts work on one repository at the same time.
git init --quiet "$M1/shared"
for round in $(seq 1 20); do
    working=()
    for mount in "$M1" "$M2"; do (
        me=$(basename "$mount")
        cd "$mount/shared"
        export GIT_AUTHOR_NAME=soak GIT_AUTHOR_EMAIL=soak@localhost GIT_COMMITTER_NAME=soak GIT_COMMITTER_EMAIL=soak@localhost
        parent=$(git rev-parse --quiet --verify "refs/heads/$me" || true)
        for number in $(seq 1 20); do
            blob=$(echo "$me $round $number" | git hash-object -w --stdin)
            tree=$(printf '100644 blob %s\tfile\n' "$blob" | git mktree)
            parent=$(git commit-tree "$tree" ${parent:+-p $parent} -m "$round $number")
            git update-ref "refs/heads/$me" "$parent"
            git branch "$me-$round-$number" "$parent"
            echo "$number" > "../beside-$me"
            mv "../beside-$me" "../beside-$me-$round-$number"
        done
    ) & working+=($!); done
    for process in "${working[@]}"; do wait "$process"; done
done
for mount in "$M1" "$M2"; do
    git -C "$mount/shared" fsck --full --strict
    [ "$(git -C "$mount/shared" for-each-ref | wc -l)" = 802 ]
done
