//! xfstests (kdave/xfstests) on clusters of its own, with delegated directories and without: what fails is
//! compared with a list of what is known to fail, and why.
//!
//! The tests are built from a directory of theirs, in a copy that is kept. They need root and what they say
//! in their README (`apt install xfslibs-dev uuid-dev libattr1-dev libacl1-dev libaio-dev libgdbm-dev
//! libtool-bin automake xfsprogs quota acl attr bc fio gawk dbench`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::stage::{Stage, ran};

/// What is known to fail, a test a line: its name, `both`, `default` or `nodelegate`, and why; `machine` if
/// it depends on the machine whether it fails.
const KNOWN: &str = include_str!("known.txt");
/// How long one test may take.
const SECONDS_EACH: u64 = 300;

/// What to run.
pub struct Choice<'a> {
    /// Where the tests are from.
    pub source: &'a Path,
    /// Which; all of the group `generic/quick` if none is named.
    pub tests: &'a [String],
    /// libfuse's example, built, to run them on instead.
    pub passthrough: Option<&'a Path>,
}

/// How a filesystem under test is mounted: the name of that, and the options.
const WAYS: [(&str, &str); 2] = [("default", "delegate"), ("nodelegate", "nodelegate")];

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    test: String,
    result: String,
    why: String,
}

/// Builds the tests, runs them, and fails if any does otherwise than the list says.
pub fn run(root: &Path, program: &Path, choice: &Choice) -> Result<()> {
    let built = build(root, choice.source)?;
    let tests = match choice.tests {
        [] => quick(&built)?,
        named => named.to_vec(),
    };
    if let Some(passthrough) = choice.passthrough {
        let outcomes = run_way(root, &built, program, &tests, ("passthrough", ""), Some(passthrough))?;
        return summary("passthrough_ll", &outcomes);
    }
    let mut wrong = Vec::new();
    for way in WAYS {
        let outcomes = run_way(root, &built, program, &tests, way, None)?;
        summary(way.0, &outcomes)?;
        wrong.extend(judge(way.0, &outcomes, &known(KNOWN)?));
    }
    if !wrong.is_empty() {
        bail!("otherwise than xtask/src/soak/xfstests/known.txt says:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

/// A copy of the tests, built once.
fn build(root: &Path, source: &Path) -> Result<PathBuf> {
    let built = root.join("target/xfstests");
    if !built.join("ltp/fsx").exists() {
        println!("building xfstests in {} ...", built.display());
        fs::create_dir_all(&built).with_context(|| format!("make {}", built.display()))?;
        ran(Command::new("cp").arg("-a").arg(source.join(".")).arg(&built))?;
        ran(Command::new("make").args(["-s", "-j2"]).current_dir(&built).stdout(Stdio::null()))
            .context("build xfstests; see which of its packages is missing")?;
    }
    Ok(built)
}

/// The tests of the group generic/quick.
fn quick(built: &Path) -> Result<Vec<String>> {
    let list = built.join("tests/generic/group.list");
    let text = fs::read_to_string(&list).with_context(|| format!("read {}", list.display()))?;
    Ok(text.lines().filter_map(quick_test).collect())
}

/// The test of a line of group.list, `001 rw dir auto quick`, if it is quick.
fn quick_test(line: &str) -> Option<String> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?;
    words.any(|group| group == "quick").then(|| format!("generic/{number}"))
}

fn run_way(
    root: &Path,
    built: &Path,
    program: &Path,
    tests: &[String],
    (way, options): (&str, &str),
    passthrough: Option<&Path>,
) -> Result<Vec<Outcome>> {
    let stage = Stage::new(root.join("target/soak-xfstests"), program.to_owned())?;
    let (tools, work) = (stage.make("tools")?, stage.make(way)?);
    for (name, text) in [("mount", include_str!("mount.sh")), ("df", include_str!("df.sh"))] {
        let tool = tools.join(name);
        fs::write(&tool, text).with_context(|| format!("write {}", tool.display()))?;
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).context("make it executable")?;
    }
    let list = work.join("tests");
    fs::write(&list, tests.join("\n") + "\n").with_context(|| format!("write {}", list.display()))?;
    let mut run = Command::new("unshare");
    run.args(["--mount", "--propagation", "private", "bash", "-euo", "pipefail", "-c"]);
    run.arg(include_str!("run.sh")).stdin(Stdio::null()).stdout(Stdio::piped());
    run.env("BUILT", built).env("WORK", &work).env("PROGRAM", program).env("OPTIONS", options);
    run.env("TESTS", &list).env("TOOLS", &tools).env("SECONDS_EACH", SECONDS_EACH.to_string());
    run.env("KIND", if passthrough.is_some() { "passthrough_ll" } else { "bearing" });
    run.env("PASSTHROUGH", passthrough.unwrap_or(Path::new("")));
    let mut child = run.spawn().context("start unshare")?;
    let said = child.stdout.take().context("its output")?;
    let mut outcomes = Vec::new();
    for line in BufReader::new(said).lines() {
        let line = line.context("read what the tests say")?;
        println!("  {way}: {line}");
        outcomes.extend(outcome(&line));
    }
    child.wait().context("wait for the tests")?;
    if outcomes.len() != tests.len() {
        bail!("{} of {} tests were run; is this root, on Linux with FUSE?", outcomes.len(), tests.len());
    }
    let kept = root.join("target/xfstests-results").join(way);
    fs::create_dir_all(&kept).with_context(|| format!("make {}", kept.display()))?;
    ran(Command::new("cp").arg("-a").arg(work.join("results/.")).arg(work.join("logs")).arg(&kept))?;
    Ok(outcomes)
}

/// A line of the script: `generic/001 notrun 3 why`.
fn outcome(line: &str) -> Option<Outcome> {
    let mut words = line.splitn(4, ' ');
    let (test, result, _seconds) = (words.next()?, words.next()?, words.next()?);
    let why = words.next().unwrap_or_default().trim().to_owned();
    Some(Outcome { test: test.to_owned(), result: result.to_owned(), why })
}

fn summary(way: &str, outcomes: &[Outcome]) -> Result<()> {
    let of = |result: &str| outcomes.iter().filter(|outcome| outcome.result == result).collect::<Vec<_>>();
    let (passed, failed, timeouts, not_run) = (of("passed"), of("failed"), of("timeout"), of("notrun"));
    let named = |of: &[&Outcome]| of.iter().map(|one| one.test.as_str()).collect::<Vec<_>>().join(" ");
    println!(
        "{way}: {} passed, {} failed, {} took longer than {SECONDS_EACH} s, {} not run",
        passed.len(),
        failed.len(),
        timeouts.len(),
        not_run.len()
    );
    println!("  failed: {}", named(&failed));
    println!("  too long: {}", named(&timeouts));
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in &not_run {
        *reasons.entry(&outcome.why).or_default() += 1;
    }
    reasons.iter().for_each(|(why, count)| println!("  not run, {count}: {why}"));
    Ok(())
}

/// Tests that are known to fail, by how it is mounted, or that may.
type Known = BTreeSet<(String, String)>;

/// Reads the list.
fn known(text: &str) -> Result<Known> {
    let mut known = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.splitn(3, ' ');
        let (Some(test), Some(way), Some(_why)) = (words.next(), words.next(), words.next()) else {
            bail!("known.txt: `{line}` has no reason");
        };
        let ways: &[&str] = match way {
            "both" => &["default", "nodelegate"],
            "default" => &["default"],
            "nodelegate" => &["nodelegate"],
            "machine" => &["machine"],
            other => bail!("known.txt: `{other}` is no way to mount"),
        };
        known.extend(ways.iter().map(|way| ((*way).to_owned(), test.to_owned())));
    }
    Ok(known)
}

/// What is otherwise than the list says.
fn judge(way: &str, outcomes: &[Outcome], known: &Known) -> Vec<String> {
    let mut wrong = Vec::new();
    for Outcome { test, result, .. } in outcomes {
        let is_listed = |way: &str| known.contains(&(way.to_owned(), test.clone()));
        if is_listed("machine") {
            continue;
        }
        let listed = is_listed(way);
        match (result.as_str(), listed) {
            ("failed" | "timeout", false) => {
                wrong.push(format!("{test} ({way}): {result}, and is not listed"))
            }
            ("passed", true) => wrong.push(format!("{test} ({way}) passed: take it from the list")),
            _ => {}
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_what_fails_has_a_reason_for_each() {
        known(KNOWN).unwrap();
        assert!(known("generic/001 both").is_err() && known("generic/001 once why").is_err());
    }

    #[test]
    fn what_fails_unlisted_and_what_passes_listed_is_wrong() {
        let outcomes: Vec<Outcome> = [
            "generic/1 failed 1",
            "generic/2 failed 1",
            "generic/3 passed 1",
            "generic/4 notrun 1 no disk",
            "generic/5 failed 1",
        ]
        .iter()
        .filter_map(|line| outcome(line))
        .collect();
        let text = "generic/2 both a\ngeneric/3 default b\ngeneric/4 both c\ngeneric/5 machine d\n";
        let known = known(text).unwrap();
        let tests = |way| judge(way, &outcomes, &known).len();
        assert_eq!((tests("default"), tests("nodelegate")), (2, 1));
        assert_eq!(outcomes[3].why, "no disk");
    }

    #[test]
    fn a_quick_test_is_found_in_its_line() {
        assert_eq!(quick_test("001 rw dir auto quick").as_deref(), Some("generic/001"));
        assert_eq!(quick_test("010 rw auto"), None);
        assert_eq!(quick_test("# See README"), None);
    }
}
