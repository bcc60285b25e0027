//! From tokens to the paths a file names, and the parts of a file that only tests compile.

use super::lex::{Kind, Token};

/// A path as written, `use` groups spread out, and the line it stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its segments; a glob's last one is `*`.
    pub segments: Vec<String>,
    /// The line of its last segment.
    pub line: usize,
}

/// Every path in `tokens`: imports with their groups spread out, then paths in types and expressions.
/// A single word counts as a path of one segment; what follows a dot does not.
pub fn all(tokens: &[Token]) -> Vec<Named> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].is_word("use") {
            at = import(tokens, at + 1, &mut found);
        } else if tokens[at].kind == Kind::Word && !follows(tokens, at, '.') {
            at = plain(tokens, at, &mut found);
        } else {
            at += 1;
        }
    }
    found
}

/// A file's own tokens, and those of each module that stands within it, with their paths below the file.
pub fn by_module(tokens: &[Token]) -> Vec<(Vec<String>, Vec<Token>)> {
    let (mut own, mut inner, mut at) = (Vec::new(), Vec::new(), 0);
    while at < tokens.len() {
        let is_module =
            tokens[at].is_word("mod") && tokens.get(at + 2).is_some_and(|token| token.is_mark('{'));
        if !is_module {
            own.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let (name, end) = (tokens[at + 1].text.clone(), closing(tokens, at + 2));
        let below = by_module(&tokens[at + 3..end.saturating_sub(1)]);
        inner.extend(
            below.into_iter().map(|(path, tokens)| {
                (std::iter::once(name.clone()).chain(path).collect::<Vec<_>>(), tokens)
            }),
        );
        at = end;
    }
    inner.insert(0, (Vec::new(), own));
    inner
}

/// What a file hands on: the paths of its `pub use`, whoever they are for.
pub fn handed_on(tokens: &[Token]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        if !tokens[at].is_word("use") || at == 0 {
            continue;
        }
        let public = tokens[at - 1].is_word("pub")
            || (tokens[at - 1].is_mark(')')
                && tokens[..at].iter().rev().take(8).any(|token| token.is_word("pub")));
        if public {
            import(tokens, at + 1, &mut found);
        }
    }
    found.into_iter().map(|named| named.segments).collect()
}

fn follows(tokens: &[Token], at: usize, mark: char) -> bool {
    at > 0 && tokens[at - 1].is_mark(mark)
}

fn is_join(tokens: &[Token], at: usize) -> bool {
    tokens.get(at).is_some_and(|t| t.is_mark(':')) && tokens.get(at + 1).is_some_and(|t| t.is_mark(':'))
}

fn plain(tokens: &[Token], start: usize, found: &mut Vec<Named>) -> usize {
    let mut segments = vec![tokens[start].text.clone()];
    let mut at = start + 1;
    while is_join(tokens, at) && tokens.get(at + 2).is_some_and(|t| t.kind == Kind::Word) {
        segments.push(tokens[at + 2].text.clone());
        at += 3;
    }
    found.push(Named { segments, line: tokens[at - 1].line });
    at
}

/// Spreads out one `use` statement from the token after `use`; answers where it ends.
fn import(tokens: &[Token], start: usize, found: &mut Vec<Named>) -> usize {
    let mut prefixes: Vec<Vec<String>> = vec![Vec::new()];
    let mut path: Vec<String> = Vec::new();
    let mut line = 0;
    let mut at = start;
    let mut renamed = false;
    while at < tokens.len() {
        let token = &tokens[at];
        let ends = token.is_mark(';') || token.is_mark(',') || token.is_mark('}');
        if ends && path.len() > prefixes.last().map_or(0, Vec::len) {
            found.push(Named { segments: path.clone(), line });
        }
        if token.is_mark(';') {
            return at + 1;
        } else if token.is_mark('{') {
            prefixes.push(path.clone());
        } else if token.is_mark('}') {
            prefixes.pop();
            path = prefixes.last().cloned().unwrap_or_default();
        } else if token.is_mark(',') {
            path = prefixes.last().cloned().unwrap_or_default();
            renamed = false;
        } else if token.is_word("as") {
            renamed = true;
        } else if (token.kind == Kind::Word || token.is_mark('*')) && !renamed {
            path.push(token.text.clone());
            line = token.line;
        }
        at += 1;
    }
    at
}

/// The tokens that are compiled outside of tests: items under `#[cfg(test)]` (or `all(test, ..)`) and
/// `#[test]` functions are left out.
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        match attribute_end(tokens, at) {
            Some(end) if is_test_attribute(&tokens[at..end]) => at = item_end(tokens, end),
            _ => {
                kept.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    kept
}

/// Names of modules declared `mod name;` under `#[cfg(test)]`: their files are tests.
pub fn test_modules(tokens: &[Token]) -> Vec<String> {
    let mut names = Vec::new();
    for at in 0..tokens.len() {
        let Some(end) = attribute_end(tokens, at) else { continue };
        if !is_test_attribute(&tokens[at..end]) {
            continue;
        }
        let item = &tokens[end..item_end(tokens, end)];
        let module = item.iter().position(|t| t.is_word("mod"));
        if let (Some(module), true) = (module, item.last().is_some_and(|t| t.is_mark(';'))) {
            names.extend(item.get(module + 1).map(|t| t.text.clone()));
        }
    }
    names
}

/// If an outer attribute starts at `at`, the index after its closing bracket.
fn attribute_end(tokens: &[Token], at: usize) -> Option<usize> {
    if !tokens[at].is_mark('#') || !tokens.get(at + 1)?.is_mark('[') {
        return None;
    }
    Some(closing(tokens, at + 1))
}

fn is_test_attribute(attribute: &[Token]) -> bool {
    let words: Vec<&str> =
        attribute.iter().filter(|t| t.kind == Kind::Word).map(|t| t.text.as_str()).collect();
    match words.as_slice() {
        ["test"] | ["cfg", "test"] => true,
        ["cfg", "all", rest @ ..] => {
            rest.contains(&"test") && !rest.contains(&"not") && !rest.contains(&"any")
        }
        _ => false,
    }
}

/// The index after the item that starts at `at`: past its other attributes, to `;` or a closing brace.
fn item_end(tokens: &[Token], start: usize) -> usize {
    let mut at = start;
    while at < tokens.len() {
        if tokens[at].is_mark(';') {
            return at + 1;
        }
        if tokens[at].is_mark('{') {
            return closing(tokens, at);
        }
        at = if tokens[at].is_mark('(') || tokens[at].is_mark('[') { closing(tokens, at) } else { at + 1 };
    }
    at
}

/// The index after the bracket that closes the one at `open`.
pub fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if token.kind != Kind::Mark {
            continue;
        }
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::super::lex::cut;
    use super::*;

    fn joined(text: &str) -> Vec<String> {
        all(&cut(text).tokens).into_iter().map(|n| n.segments.join("::")).collect()
    }

    #[test]
    fn nested_imports_are_spread_out() {
        let found = joined("use std::{fs, io::{self, Write as W}, time::*}; use ::x::y;");
        assert_eq!(found, ["std::fs", "std::io::self", "std::io::Write", "std::time::*", "x::y"]);
    }

    #[test]
    fn paths_in_expressions_are_found_and_methods_are_not() {
        assert_eq!(joined("::std::thread::spawn(x.env)"), ["std::thread::spawn", "x"]);
    }

    #[test]
    fn modules_within_a_file_are_told_apart() {
        let found = by_module(&cut("use a; mod b { use super::c; mod d { e } } f").tokens);
        let words =
            |tokens: &[Token]| -> Vec<String> { tokens.iter().map(|token| token.text.clone()).collect() };
        let found: Vec<_> =
            found.iter().map(|(path, tokens)| (path.join("::"), words(tokens).join(" "))).collect();
        let expected = [("", "use a ; f"), ("b", "use super : : c ;"), ("b::d", "e")];
        assert_eq!(found, expected.map(|(path, words)| (path.to_owned(), words.to_owned())));
    }

    #[test]
    fn test_items_are_left_out() {
        let text = "a #[cfg(test)] #[allow(x)] mod t { b } c #[cfg(all(test, unix))] use d; e
                    #[cfg(any(test, feature = \"x\"))] fn f() {} #[test] fn g() { h }";
        let kept = without_tests(&cut(text).tokens);
        let words: Vec<_> = kept.iter().filter(|t| t.text.len() == 1 && t.kind == Kind::Word).collect();
        assert_eq!(words.iter().map(|t| t.text.as_str()).collect::<String>(), "acef");
    }

    #[test]
    fn files_of_test_modules_are_named() {
        let text = "#[cfg(test)] mod laws; mod code; #[cfg(test)] mod inside { mod x; }";
        assert_eq!(test_modules(&cut(text).tokens), ["laws"]);
    }
}
