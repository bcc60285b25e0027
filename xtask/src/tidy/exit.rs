//! In the metadata server one file makes replies and messages to other servers: it is the one that knows when
//! what they rest on is committed, and that nobody else can own the tablet that says them.

use super::lex::Token;
use super::report::Findings;
use super::tree::Tree;

/// Whose sources are looked at.
const ROOM: &str = "meta";
/// The file.
const EXIT: &str = "crates/meta/src/engine/exit.rs";
/// The commands that it alone makes.
const COMMANDS: &[&str] = &["Reply", "Peer"];

/// Checks that no other file of the room has these commands.
pub fn check(tree: &Tree, found: &mut Findings) {
    let others = tree.rust.iter().filter(|file| file.room == ROOM && !file.test_only && file.path != EXIT);
    for file in others {
        for window in file.tokens.windows(5) {
            if let Some(command) = made(window) {
                found.add(
                    &file.path,
                    window[0].line,
                    format!("`Command::{command}` beside the one exit"),
                    format!("have {EXIT} hold or send it"),
                );
            }
        }
    }
}

/// The command in `Command :: <command> (`.
fn made(window: &[Token]) -> Option<&str> {
    let [name, colon, another, command, open] = window else { return None };
    let is_made = name.is_word("Command") && colon.is_mark(':') && another.is_mark(':') && open.is_mark('(');
    COMMANDS.iter().copied().find(|name| is_made && command.is_word(name))
}
