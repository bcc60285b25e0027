//! Modes and owners as people write them: `u+rwX,go-w`, `0644`, `alice:users`, `1000:`.

use crate::failure::Usage;
use anyhow::{Result, bail};
use bearing_types::{Gid, Mode, Uid};
use std::fs;

/// A change of permission bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange(Vec<Clause>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Clause {
    /// All bits.
    To(u32),
    /// These bits of these classes.
    Change { classes: u32, sign: char, bits: u32, execute_if_any: bool },
}

impl ModeChange {
    /// Understands what chmod(1) does, but for copying from another class.
    pub fn parse(text: &str) -> Result<ModeChange> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            return match u32::from_str_radix(text, 8) {
                Ok(bits) if bits <= 0o7777 => Ok(ModeChange(vec![Clause::To(bits)])),
                _ => wrong(text),
            };
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            let Some(sign) = part.find(['+', '-', '=']) else { return wrong(text) };
            let mut classes = 0;
            for letter in part[..sign].chars() {
                classes |= match letter {
                    'u' => 0o4700,
                    'g' => 0o2070,
                    'o' => 0o0007,
                    'a' => 0o6777,
                    _ => return wrong(text),
                };
            }
            let classes = if sign == 0 { 0o6777 } else { classes };
            let (mut bits, mut execute_if_any) = (0, false);
            for letter in part[sign + 1..].chars() {
                bits |= match letter {
                    'r' => 0o0444,
                    'w' => 0o0222,
                    'x' => 0o0111,
                    's' => 0o6000,
                    't' => 0o1000,
                    'X' => {
                        execute_if_any = true;
                        0
                    }
                    _ => return wrong(text),
                };
            }
            // The sticky bit is of no class.
            let classes = classes | 0o1000;
            let sign = part[sign..].chars().next().unwrap_or('=');
            clauses.push(Clause::Change { classes, sign, bits, execute_if_any });
        }
        Ok(ModeChange(clauses))
    }

    /// The bits after the change. `X` is execution for directories, and where somebody may execute already.
    pub fn apply(&self, mode: Mode, is_directory: bool) -> Mode {
        let changed = self.0.iter().fold(mode.bits(), |before, clause| match clause {
            Clause::To(bits) => *bits,
            Clause::Change { classes, sign, bits, execute_if_any } => {
                let executes = *execute_if_any && (is_directory || before & 0o111 != 0);
                let bits = (bits | if executes { 0o111 } else { 0 }) & classes;
                match sign {
                    '+' => before | bits,
                    '-' => before & !bits,
                    // What is not written for a class is taken away; the sticky bit only if it is written.
                    _ => before & !(classes & 0o6777) | bits,
                }
            }
        });
        Mode::new(changed)
    }
}

fn wrong<T>(text: &str) -> Result<T> {
    bail!(Usage(format!("{text}: no mode; write it like 644, u+x or go-w,a+X")))
}

/// Owner and group of `USER`, `USER:GROUP`, `:GROUP` or `USER:`, by number or by this machine's names.
pub fn parse_owner(text: &str) -> Result<(Option<Uid>, Option<Gid>)> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    if user.is_empty() && group.is_empty() {
        bail!(Usage(format!("{text}: no owner; write it like alice, 1000:100 or :users")));
    }
    let uid = if user.is_empty() { None } else { Some(Uid(number_of(user, "/etc/passwd", "user")?)) };
    let gid = if group.is_empty() { None } else { Some(Gid(number_of(group, "/etc/group", "group")?)) };
    Ok((uid, gid))
}

fn number_of(name: &str, table: &str, what: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let text = fs::read_to_string(table).unwrap_or_default();
    match in_table(&text, name) {
        Some(number) => Ok(number),
        None => bail!(Usage(format!("{name}: no {what} of this machine ({table}); give the number"))),
    }
}

/// Both tables have the name in the first and the number in the third field.
fn in_table(text: &str, name: &str) -> Option<u32> {
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.find(|fields| fields[0] == name)?.get(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_change_as_chmod_does() {
        for (before, text, after) in [
            (0o644, "755", 0o755),
            (0o644, "u+x", 0o744),
            (0o777, "go-w", 0o755),
            (0o640, "a+X", 0o640),
            (0o740, "a+X", 0o751),
            (0o777, "o=", 0o770),
            (0o4755, "u=rw", 0o655),
            (0o755, "+t", 0o1755),
            (0o755, "g+s,o-rx", 0o2750),
            (0o1777, "a=rx", 0o1555),
        ] {
            let change = ModeChange::parse(text).unwrap();
            assert_eq!(
                format!("{:o}", change.apply(Mode::new(before), false).bits()),
                format!("{after:o}"),
                "{text}"
            );
        }
        assert_eq!(ModeChange::parse("a+X").unwrap().apply(Mode::new(0o600), true).bits(), 0o711);
        for wrong in ["", "9", "77777", "u", "q+r", "u+q", "u+r,"] {
            assert!(ModeChange::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn owners_are_numbers_or_names_of_this_machine() {
        assert_eq!(parse_owner("7").unwrap(), (Some(Uid(7)), None));
        assert_eq!(parse_owner("7:8").unwrap(), (Some(Uid(7)), Some(Gid(8))));
        assert_eq!(parse_owner(":8").unwrap(), (None, Some(Gid(8))));
        assert_eq!(parse_owner("root:").unwrap(), (Some(Uid(0)), None));
        assert!(parse_owner(":").is_err() && parse_owner("").is_err());
        let error = parse_owner("nobody-of-this-name").unwrap_err().to_string();
        assert!(error.contains("give the number"), "{error}");
        assert_eq!(in_table("a:x:1:2\nb:x:3:4\n", "none"), None);
    }
}
