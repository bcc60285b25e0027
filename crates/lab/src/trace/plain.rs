//! Plain traces, as `lab trace convert` and `generate` write them: see `docs/formats/trace.md`.

use super::event::{Event, Kind, Parsed, Parser};
use std::fmt::Write as _;

/// The first line.
pub const HEADER: &str = "time_us,client,operation,path,to";

#[derive(Default)]
pub(super) struct Plain {
    begun: bool,
}

impl Parser for Plain {
    fn line(&mut self, line: &str) -> Parsed {
        if line.starts_with('#') {
            return Parsed::Nothing;
        }
        if !std::mem::replace(&mut self.begun, true) && line.trim_end() == HEADER {
            return Parsed::Nothing;
        }
        let Some(fields) = fields(line) else { return Parsed::Malformed("a quote is not closed") };
        let [at, client, kind, path, rest @ ..] = &fields[..] else {
            return Parsed::Malformed("it has fewer than the fields time_us,client,operation,path");
        };
        let Ok(at_us) = at.parse::<u64>() else { return Parsed::Malformed("time_us is no number") };
        let Ok(client) = client.parse::<u64>() else { return Parsed::Malformed("client is no number") };
        let Some(kind) = Kind::named(kind) else { return Parsed::Other(kind.clone()) };
        let Some(path) = unescaped(path).filter(|path| path.starts_with('/')) else {
            return Parsed::Malformed("path does not begin with /, or has a wrong \\x");
        };
        let to = match rest {
            [] => None,
            [to] if to.is_empty() => None,
            [to] => match unescaped(to).filter(|to| to.starts_with('/')) {
                Some(to) => Some(to),
                None => return Parsed::Malformed("to does not begin with /, or has a wrong \\x"),
            },
            _ => return Parsed::Malformed("it has more than five fields"),
        };
        let Ok(at) = i64::try_from(at_us) else { return Parsed::Malformed("time_us is too large") };
        Parsed::Event(at, Event { at_us, client, kind, path, to })
    }
}

/// Fields between commas; one in quotes may have commas, and quotes twice. `None`: a quote is not closed.
fn fields(line: &str) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let mut field = String::new();
        if let Some(quoted) = rest.strip_prefix('"') {
            rest = quoted;
            loop {
                let end = rest.find('"')?;
                field.push_str(&rest[..end]);
                rest = &rest[end + 1..];
                match rest.strip_prefix('"') {
                    Some(more) => {
                        field.push('"');
                        rest = more;
                    }
                    None => break,
                }
            }
        }
        let end = rest.find(',').unwrap_or(rest.len());
        field.push_str(&rest[..end]);
        fields.push(field);
        match rest.get(end + 1..) {
            Some(more) => rest = more,
            None => return Some(fields),
        }
    }
}

fn unescaped(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    let mut plain = String::with_capacity(text.len());
    let mut parts = text.split('\\');
    plain.push_str(parts.next()?);
    for part in parts {
        let digits = part.strip_prefix('x')?.get(..2)?;
        plain.push(char_of(u8::from_str_radix(digits, 16).ok()?));
        plain.push_str(&part[3..]);
    }
    Some(plain)
}

/// Bytes of names that are not UTF-8 are letters of Unicode's private area, so that no two names become one.
const NOT_UTF8: u32 = 0xf700;

/// The letter for a byte: itself, if it is ASCII.
pub(super) fn char_of(byte: u8) -> char {
    match byte.is_ascii() {
        true => char::from(byte),
        false => char::from_u32(NOT_UTF8 + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER),
    }
}

/// The byte that a letter stands for, if it is not UTF-8.
fn byte_of(letter: char) -> Option<u8> {
    u8::try_from(u32::from(letter).checked_sub(NOT_UTF8)?).ok().filter(|byte| !byte.is_ascii())
}

/// Text with what is not UTF-8 in it.
pub(super) fn text_of(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| char_of(*byte)));
    }
    text.into()
}

fn put(line: &mut String, path: &str) {
    let special = |letter: char| letter.is_ascii_control() || letter == '\\';
    let mut escaped = String::with_capacity(path.len());
    for letter in path.chars() {
        match letter {
            _ if byte_of(letter).is_some() => {
                write!(escaped, "\\x{:02x}", byte_of(letter).unwrap_or_default()).expect("strings take all");
            }
            _ if special(letter) => write!(escaped, "\\x{:02x}", letter as u32).expect("strings take all"),
            _ => escaped.push(letter),
        }
    }
    match escaped.contains([',', '"']) {
        true => write!(line, ",\"{}\"", escaped.replace('"', "\"\"")).expect("strings take all"),
        false => write!(line, ",{escaped}").expect("strings take all"),
    }
}

/// An operation as a line of a plain trace, without its end.
pub fn line_of(event: &Event) -> String {
    let mut line = format!("{},{},{}", event.at_us, event.client, event.kind.name());
    put(&mut line, &event.path);
    if let Some(to) = &event.to {
        put(&mut line, to);
    }
    line
}
