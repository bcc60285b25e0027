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
