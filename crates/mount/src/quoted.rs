//! Names for people: as ls(1) writes them on a terminal, so that a name can be copied back into a shell and
//! cannot command the terminal.

/// Bytes that a shell takes for something else when they stand in a word. (`#` and `~` only at its
/// beginning.)
const SPECIAL: &[u8] = b" !\"$&'()*;<=>?[\\^`|";
/// The same within double quotes.
const SPECIAL_QUOTED: &[u8] = b"!\"$\\`";

/// A name or a path as a shell would take it: as it is if that is a plain word, else in quotes, with what
/// does not print as `$'\n'` or `$'\377'`.
pub fn quoted(name: &[u8]) -> String {
    let pieces = pieces(name);
    let prints = pieces.iter().all(|piece| matches!(piece, Piece::Text(_)));
    let special = |bytes: &[u8]| name.iter().any(|byte| bytes.contains(byte));
    let starts_special = name.first().is_some_and(|first| b"#~".contains(first));
    match prints {
        true if name.is_empty() => "''".to_owned(),
        true if !special(SPECIAL) && !starts_special => String::from_utf8_lossy(name).into_owned(),
        true if name.contains(&b'\'') && !special(SPECIAL_QUOTED) => {
            format!("\"{}\"", String::from_utf8_lossy(name))
        }
        _ => pieces.iter().map(Piece::quoted).collect(),
    }
}

enum Piece<'a> {
    /// What prints.
    Text(&'a str),
    /// What does not.
    Bytes(&'a [u8]),
}

impl Piece<'_> {
    fn quoted(&self) -> String {
        match self {
            Piece::Text(text) => format!("'{}'", text.replace('\'', "'\\''")),
            Piece::Bytes(bytes) => {
                let escaped: String = bytes.iter().map(|byte| escaped(*byte)).collect();
                format!("$'{escaped}'")
            }
        }
    }
}

fn escaped(byte: u8) -> String {
    match byte {
        b'\n' => "\\n".to_owned(),
        b'\t' => "\\t".to_owned(),
        b'\r' => "\\r".to_owned(),
        _ => format!("\\{byte:03o}"),
    }
}

/// Runs of characters that print, and of bytes that do not.
fn pieces(name: &[u8]) -> Vec<Piece<'_>> {
    let mut runs: Vec<(bool, usize)> = Vec::new();
    let mut add = |printing: bool, bytes: usize| match runs.last_mut() {
        Some((kind, length)) if *kind == printing => *length += bytes,
        _ => runs.push((printing, bytes)),
    };
    for chunk in name.utf8_chunks() {
        chunk.valid().chars().for_each(|letter| add(prints(letter), letter.len_utf8()));
        if !chunk.invalid().is_empty() {
            add(false, chunk.invalid().len());
        }
    }
    let mut rest = name;
    let piece = |(printing, length)| {
        let (run, after) = rest.split_at(length);
        rest = after;
        match std::str::from_utf8(run) {
            Ok(text) if printing => Piece::Text(text),
            _ => Piece::Bytes(run),
        }
    };
    runs.into_iter().map(piece).collect()
}

/// Control characters do not, nor what turns the direction of text around or is not seen at all.
fn prints(letter: char) -> bool {
    let is_hidden = matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    !letter.is_control() && !is_hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_ls_quotes_them() {
        for (name, expected) in [
            (&b"plain.txt"[..], "plain.txt"),
            (b"/a/b", "/a/b"),
            ("\u{e4}\u{4e2d}".as_bytes(), "\u{e4}\u{4e2d}"),
            (b"a{b}#c~", "a{b}#c~"),
            (b"", "''"),
            (b"two words", "'two words'"),
            (b"a=b", "'a=b'"),
            (b"~", "'~'"),
            (b"it's", "\"it's\""),
            (b"it's $1", "'it'\\''s $1'"),
            (b"line\nfeed", "'line'$'\\n''feed'"),
            (b"\x1b[31mred", "$'\\033''[31mred'"),
            (b"\xff\xfe", "$'\\377\\376'"),
            ("a\u{202e}b".as_bytes(), "'a'$'\\342\\200\\256''b'"),
        ] {
            assert_eq!(quoted(name), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_shell_reads_back_what_was_quoted(name in proptest::collection::vec(1u8..=255, 0..24)) {
            let script = format!("printf %s {}", quoted(&name));
            let output = std::process::Command::new("bash").args(["-c", &script]).output();
            if let Ok(output) = output {
                proptest::prop_assert_eq!(output.stdout, name);
            }
        }
    }
}
