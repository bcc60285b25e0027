# Two mounts work until the time is over: one clones the project's repository, the other unpacks a source tree of real shape. Each is looked at by the other.
sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
[ -d "$sources" ] || sources=$ROOT/crates
# Of one commit, whatever happens in the repository meanwhile.
git clone --quiet --bare --no-hardlinks "$ROOT" repository.git
tar -cf sources.tar -C "$sources" .
mkdir sources
tar -xf sources.tar -C sources
find sources -type d -printf '%m %P\n' | sort > directories
clones() {
    local count=0
    while [ $SECONDS -lt "$SECONDS_MAX" ]; do
        git clone --quiet --no-hardlinks "$PWD/repository.git" "$M1/clone"
        git -C "$M1/clone" fsck --full --no-dangling
        [ -z "$(git -C "$M2/clone" status --porcelain)" ]
        [ "$(git -C "$M2/clone" rev-parse HEAD)" = "$(git -C repository.git rev-parse HEAD)" ]
        rm -rf "${M1:?}/clone"
        [ ! -e "$M2/clone" ]
        count=$((count + 1))
    done
    echo "  $count clones"
}
archives() {
    local count=0
    while [ $SECONDS -lt "$SECONDS_MAX" ]; do
        mkdir "$M2/tree"
        tar -xf sources.tar -C "$M2/tree"
        diff -r sources "$M1/tree"
        find "$M1/tree" -type d -printf '%m %P\n' | sort | diff directories -
        mv "$M1/tree" "$M1/tree-old"
        rm -rf "${M2:?}/tree-old"
        [ ! -e "$M1/tree-old" ]
        count=$((count + 1))
    done
    echo "  $count archives of $(find sources -type f | wc -l) files in $(wc -l < directories) directories"
}
clones & working=$!
archives
wait $working
