//! The audit log of an HDFS NameNode: `date time LEVEL logger: allowed=true<tab>ugi=..<tab>ip=..<tab>cmd=..
//! <tab>src=..<tab>dst=..<tab>perm=..<tab>proto=..`, perhaps with spaces instead of tabs.

use super::event::{Event, Kind, Parsed, Parser, client_of};
use super::time::days;

pub(super) struct HdfsAudit;

const KEYS: [&str; 9] = ["allowed", "ugi", "ip", "cmd", "src", "dst", "perm", "proto", "callerContext"];

/// What stands behind each key. A value may have spaces and `=` in it, but no ` key=` of these; where tabs
/// separate keys, none behind a tab.
fn values(line: &str) -> Vec<(&'static str, &str)> {
    let bytes = line.as_bytes();
    let in_tabs = line.contains("\tcmd=");
    let starts = |at: usize, key: &str| {
        at == 0
            || bytes[at - 1] == b'\t'
            || bytes[at - 1].is_ascii_whitespace() && (!in_tabs || key == KEYS[0])
    };
    let mut found: Vec<(usize, &'static str)> = Vec::new();
    for key in KEYS {
        let with_sign = line
            .match_indices(key)
            .find(|(at, _)| starts(*at, key) && bytes.get(at + key.len()) == Some(&b'='));
        found.extend(with_sign.map(|(at, _)| (at, key)));
    }
    found.sort_unstable();
    let ends = found.iter().skip(1).map(|(at, _)| *at).chain([line.len()]);
    found.iter().zip(ends).map(|((at, key), end)| (*key, line[at + key.len() + 1..end].trim())).collect()
}

/// What commands do to the file that they name. Of those that are not listed the first word of the name
/// says it.
fn kind_of(command: &str) -> Option<Kind> {
    Some(match command {
        "open" => Kind::Open,
        "create" | "createSymlink" => Kind::Create,
        "mkdirs" => Kind::MakeDirectory,
        "delete" => Kind::Remove,
        "rename" => Kind::Rename,
        "listStatus" | "listSnapshottableDirectory" => Kind::List,
        "append" | "truncate" | "concat" => Kind::Update,
        _ => {
            let first = command.split(char::is_uppercase).next().unwrap_or("");
            match first {
                "get" | "getfileinfo" | "getfilelinkinfo" | "check" | "is" | "list" | "content" | "quota" => {
                    Kind::Lookup
                }
                "set" | "unset" | "modify" | "remove" | "satisfy" | "clear" | "recover" | "create"
                | "delete" | "rename" | "allow" | "disallow" => Kind::Update,
                _ => return None,
            }
        }
    })
}

/// `/a`, or what is behind the host of `viewfs://host/a`.
fn path_of(text: &str) -> Option<&str> {
    let path = match text.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => &rest[rest.find('/')?..],
        _ => text,
    };
    path.starts_with('/').then_some(path)
}

impl Parser for HdfsAudit {
    fn line(&mut self, line: &str) -> Parsed {
        let values = values(line);
        let value = |key: &str| values.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        let Some(command) = value("cmd") else { return Parsed::Malformed("it has no cmd=") };
        let Some(at) = time(line) else {
            return Parsed::Malformed("it does not begin with a date and a time");
        };
        // rename (options=[TO_TRASH])
        let word = command.split([' ', '(']).next().unwrap_or(command);
        if value("allowed") == Some("false") {
            return Parsed::Other(format!("{word}, refused"));
        }
        let Some(kind) = kind_of(word) else { return Parsed::Other(word.to_owned()) };
        // concat: src=[/part, /part], dst=/target
        let source = if word == "concat" { value("dst") } else { value("src") };
        let Some(path) = source.and_then(path_of) else {
            return Parsed::Other(format!("{word}, of no path"));
        };
        let to = (kind == Kind::Rename).then(|| value("dst").and_then(path_of)).flatten();
        if kind == Kind::Rename && to.is_none() {
            return Parsed::Malformed("a rename has no dst= with a path");
        }
        let client = client_of(value("ip").unwrap_or("").as_bytes());
        Parsed::Event(at, Event { at_us: 0, client, kind, path: path.to_owned(), to: to.map(str::to_owned) })
    }
}

/// `2014-01-01 00:00:01,010` or `2014-01-01T00:00:01.010`, as microseconds since 1970.
fn time(line: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = line.get(range)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let is = |at: usize, any: &str| line.get(at..=at).is_some_and(|letter| any.contains(letter));
    if !(is(4, "-") && is(7, "-") && is(10, " T") && is(13, ":") && is(16, ":")) {
        return None;
    }
    let day = days(number(0..4)?, number(5..7)?, number(8..10)?)?;
    let seconds = day * 86_400 + number(11..13)? * 3600 + number(14..16)? * 60 + number(17..19)?;
    let thousandths = if is(19, ",.") { number(20..23).unwrap_or(0) } else { 0 };
    Some(seconds * 1_000_000 + thousandths * 1000)
}
