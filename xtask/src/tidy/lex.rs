//! Rust source cut into tokens, just far enough to ask which words stand in it.
//!
//! Comments are kept apart from code, and the text of a string is one token, so a forbidden word in a
//! message or an explanation is not taken for a use of it. Broken source never panics here: what cannot
//! be cut is passed over, the compiler will say what is wrong with it.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or keyword (a raw one without its `r#`).
    Word,
    /// One punctuation character; `::` is two of them.
    Mark,
    /// A string of any form; the token's text is what stands between the quotes.
    Text,
    /// A number, a character or a lifetime.
    Other,
}

/// One token and the line it starts on, counted from 1.
#[derive(Clone, Debug)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Its text.
    pub text: String,
    /// The line it starts on.
    pub line: usize,
}

impl Token {
    /// Whether this is the identifier or keyword `word`.
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text == word
    }

    /// Whether this is the punctuation character `mark`.
    pub fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark && self.text.starts_with(mark)
    }
}

/// A source file taken apart.
#[derive(Debug, Default)]
pub struct Source {
    /// The code.
    pub tokens: Vec<Token>,
    /// The comments, each line of one by itself: (line, text).
    pub comments: Vec<(usize, String)>,
}

/// Cuts `text` into tokens and comments.
pub fn cut(text: &str) -> Source {
    let mut cutter = Cutter { chars: text.chars().collect(), at: 0, line: 1, out: Source::default() };
    while cutter.at < cutter.chars.len() {
        cutter.one();
    }
    cutter.out
}

struct Cutter {
    chars: Vec<char>,
    at: usize,
    line: usize,
    out: Source,
}

impl Cutter {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            if self.peek(0) == '\n' {
                self.line += 1;
            }
            self.at += 1;
        }
    }

    fn one(&mut self) {
        let first = self.peek(0);
        match first {
            '/' if self.peek(1) == '/' => self.line_comment(),
            '/' if self.peek(1) == '*' => self.block_comment(),
            '"' => self.string(0),
            '\'' => self.quote(),
            _ if first.is_whitespace() => self.skip(1),
            _ if first.is_ascii_digit() => self.number(),
            _ if is_word_char(first) => self.word(),
            _ => {
                self.push(Kind::Mark, first.to_string(), self.line);
                self.skip(1);
            }
        }
    }

    fn push(&mut self, kind: Kind, text: String, line: usize) {
        self.out.tokens.push(Token { kind, text, line });
    }

    fn taken(&self, from: usize, to: usize) -> String {
        let end = to.min(self.chars.len());
        self.chars[from.min(end)..end].iter().collect()
    }

    fn line_comment(&mut self) {
        let start = self.at;
        while self.at < self.chars.len() && self.peek(0) != '\n' {
            self.at += 1;
        }
        let text = self.taken(start, self.at);
        self.out.comments.push((self.line, text));
    }

    fn block_comment(&mut self) {
        let (start, first_line) = (self.at, self.line);
        let mut depth = 0_usize;
        while self.at < self.chars.len() {
            if self.peek(0) == '/' && self.peek(1) == '*' {
                depth += 1;
                self.skip(2);
            } else if self.peek(0) == '*' && self.peek(1) == '/' {
                depth -= 1;
                self.skip(2);
                if depth == 0 {
                    break;
                }
            } else {
                self.skip(1);
            }
        }
        let text = self.taken(start, self.at);
        for (index, line) in text.lines().enumerate() {
            self.out.comments.push((first_line + index, line.to_owned()));
        }
    }

    /// A string with escapes; `before` is the length of its prefix (`b`, `c`).
    fn string(&mut self, before: usize) {
        let line = self.line;
        self.skip(before + 1);
        let start = self.at;
        while self.at < self.chars.len() && self.peek(0) != '"' {
            let step = if self.peek(0) == '\\' { 2 } else { 1 };
            self.skip(step);
        }
        let text = self.taken(start, self.at);
        self.skip(1);
        self.push(Kind::Text, text, line);
    }

    /// A raw string; `before` is the length of its prefix (`r`, `br`), `hashes` the number of `#`.
    fn raw_string(&mut self, before: usize, hashes: usize) {
        let line = self.line;
        self.skip(before + hashes + 1);
        let start = self.at;
        while self.at < self.chars.len() && !self.closes_raw(hashes) {
            self.skip(1);
        }
        let text = self.taken(start, self.at);
        self.skip(1 + hashes);
        self.push(Kind::Text, text, line);
    }

    fn closes_raw(&self, hashes: usize) -> bool {
        self.peek(0) == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == '#')
    }

    /// A character (`'x'`, `'\n'`) or a lifetime (`'a`).
    fn quote(&mut self) {
        let (start, line) = (self.at, self.line);
        if self.peek(1) == '\\' {
            self.skip(3);
            while self.at < self.chars.len() && self.peek(0) != '\'' {
                self.skip(1);
            }
            self.skip(1);
        } else if self.peek(2) == '\'' {
            self.skip(3);
        } else {
            self.skip(1);
            while is_word_char(self.peek(0)) {
                self.skip(1);
            }
        }
        let text = self.taken(start, self.at);
        self.push(Kind::Other, text, line);
    }

    fn number(&mut self) {
        let (start, line) = (self.at, self.line);
        while is_word_char(self.peek(0)) || (self.peek(0) == '.' && self.peek(1).is_ascii_digit()) {
            self.skip(1);
        }
        let text = self.taken(start, self.at);
        self.push(Kind::Other, text, line);
    }

    fn word(&mut self) {
        let (start, line) = (self.at, self.line);
        let mut end = self.at;
        while self.chars.get(end).copied().is_some_and(is_word_char) {
            end += 1;
        }
        let text = self.taken(start, end);
        let length = end - start;
        let hashes = self.chars[end..].iter().take_while(|&&c| c == '#').count();
        let quoted = self.chars.get(end + hashes) == Some(&'"');
        match text.as_str() {
            "r" | "br" | "cr" if quoted => return self.raw_string(length, hashes),
            "b" | "c" if quoted && hashes == 0 => return self.string(length),
            "b" if self.chars.get(end) == Some(&'\'') => {
                self.skip(1);
                return self.quote();
            }
            // A raw identifier: the word follows the hash.
            "r" if hashes == 1 => return self.skip(2),
            _ => {}
        }
        self.skip(length);
        self.push(Kind::Word, text, line);
    }
}

fn is_word_char(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        cut(text).tokens.into_iter().filter(|t| t.kind == Kind::Word).map(|t| t.text).collect()
    }

    #[test]
    fn strings_and_comments_are_not_code() {
        let text = "a \"b \\\" c\" /* d /* e */ f */ g // h\n r#\"i \" j\"# b\"k\" l";
        assert_eq!(words(text), ["a", "g", "l"]);
    }

    #[test]
    fn a_lifetime_does_not_open_a_character() {
        assert_eq!(
            words("fn f<'a>(x: &'a str) { let q = 'x'; let s = '\\''; done }"),
            ["fn", "f", "x", "str", "let", "q", "let", "s", "done"]
        );
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let source = cut("\"x\ny\" /* 2\n3 */ last");
        assert_eq!(source.tokens.last().map(|t| t.line), Some(3));
        assert_eq!(source.comments.iter().map(|c| c.0).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn unfinished_source_is_passed_over() {
        for text in ["\"", "r#\"", "/*", "'", "'\\", "b'", "r#", "1."] {
            cut(text);
        }
    }

    #[test]
    fn tuple_fields_and_ranges_keep_their_words() {
        assert_eq!(words("self.0.iter(); 0..ten"), ["self", "iter", "ten"]);
    }
}
