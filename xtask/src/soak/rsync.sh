# A tree with what trees have; the second run finds nothing to do, nor does one that reads every byte through the other mount.
command -v rsync >/dev/null || { echo "rsync is missing; install it: apt-get install rsync"; exit 1; }
mkdir source
cp -a "$ROOT/crates" "$ROOT/docs" source/
cp -a /usr/share/doc source/doc 2>/dev/null || true
(cd source && ln -s nowhere dangling && ln docs/promises.md hard && mkfifo pipe && truncate -s 1G sparse && echo end >> sparse)
rsync -aHS source/ "$M1/copy/"
moved=$(rsync -aHSi source/ "$M1/copy/")
[ -z "$moved" ] || { echo "the second run moved:"; head <<< "$moved"; exit 1; }
moved=$(rsync -aHSic --exclude=sparse source/ "$M2/copy/")
[ -z "$moved" ] || { echo "by their sums these differ:"; head <<< "$moved"; exit 1; }
[ "$(du -k "$M2/copy/sparse" | cut -f1)" -lt 1000 ]
