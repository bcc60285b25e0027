# Accounts whose sum never changes, moved between by transactions; writers are killed in between, and what is left must be whole.
command -v python3 >/dev/null || { echo "python3 is missing; install it"; exit 1; }
cat > bank.py <<'PYTHON'
import random, sqlite3, sys
path, mode, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
random.seed(seed)
bank = sqlite3.connect(path, timeout=30, isolation_level=None)
assert bank.execute(f"pragma journal_mode={mode}").fetchone()[0] == mode, "the journal's mode"
bank.execute("create table if not exists account(id integer primary key, sum integer, note blob)")
if bank.execute("select count(*) from account").fetchone()[0] == 0:
    bank.execute("begin")
    bank.executemany("insert into account values(?, 100, zeroblob(500))", [(n,) for n in range(500)])
    bank.execute("commit")
assert bank.execute("pragma integrity_check").fetchone()[0] == "ok"
assert bank.execute("select count(*), sum(sum) from account").fetchone() == (500, 50000)
for turn in range(count):
    source, target, sum = random.randrange(500), random.randrange(500), random.randrange(20)
    bank.execute("begin immediate")
    bank.execute("update account set sum = sum - ? where id = ?", (sum, source))
    bank.execute("update account set sum = sum + ?, note = randomblob(?) where id = ?", (sum, random.randrange(3000), target))
    bank.execute("commit")
assert bank.execute("pragma integrity_check").fetchone()[0] == "ok"
PYTHON
for mode in delete truncate wal; do
    for turn in $(seq 1 10); do
        # The shell tells of the kill on its own standard error.
        { timeout -s KILL 2 python3 bank.py "$M1/$mode.db" $mode $((SEED + turn)) 100000; } 2> turn.log || [ $? = 137 ] || { cat turn.log; exit 1; }
    done
    python3 bank.py "$M1/$mode.db" $mode "$SEED" 50
    # Two at the same time, on one mount.
    python3 bank.py "$M1/$mode.db" $mode "$SEED" 50 & other=$!
    python3 bank.py "$M1/$mode.db" $mode $((SEED + 1)) 50
    wait $other
done
