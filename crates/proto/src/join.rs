//! How a host joins a cluster: by a one-time token, which is the secret of an enrolment that is good for
//! nothing else. Who shows it is told what a server has to know, sealed for its session.

use crate::client::ServerEntry;
use crate::coordinator::ENROLMENT_PREFIX;
use crate::enrolment::{Enrolment, EnrolmentName};
use crate::keys::Key;
use bearing_types::Squash;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// Names of tokens begin with this, and those of other enrolments do not.
pub const TOKEN_PREFIX: &str = "join.";
/// A token is good for so long.
pub const TOKEN_LIFE: Duration = Duration::from_hours(24);
/// So many servers a host may bring at once.
pub const SERVERS_MAX: usize = 64;

const FIRST_WORD: &str = "bearing-join-1";

/// The registers of tokens are under this prefix.
pub fn token_register_prefix() -> String {
    format!("{ENROLMENT_PREFIX}{TOKEN_PREFIX}")
}

/// What a host asks for with its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Chosen by the asker; the answer repeats it.
    pub id: u64,
    /// Where its metadata servers will be reached.
    pub metadata: Vec<SocketAddr>,
    /// And its data servers.
    pub data: Vec<SocketAddr>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The question's id.
    pub id: u64,
    /// A [`Welcome`], sealed; or why not, in words.
    pub result: Result<Vec<u8>, String>,
}

/// What a host that joins has to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The text of `cluster.toml`.
    pub cluster: String,
    /// The bytes of the cluster key.
    pub cluster_key: [u8; 32],
    /// The bytes of the enrolment secret.
    pub enrolment_key: [u8; 32],
    /// The `[etcd]` of configurations, with the text of its files, if the registers are there.
    pub etcd: Option<EtcdAccess>,
    /// The servers as they were registered, in the order in which they were asked for.
    pub servers: Vec<ServerEntry>,
}

impl Welcome {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain values always encode")
    }

    /// From its bytes, if they are of one.
    pub fn decode(bytes: &[u8]) -> Option<Welcome> {
        postcard::from_bytes(bytes).ok()
    }
}

/// How etcd is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdAccess {
    /// URLs of its members.
    pub endpoints: Vec<String>,
    /// The authority's certificate, in PEM.
    pub authority: Option<String>,
    /// The certificate and its key, in PEM.
    pub identity: Option<(String, String)>,
}

/// Whether an enrolment is a token, with which nothing but joining is allowed.
pub fn is_token(name: &EnrolmentName) -> bool {
    name.as_str().starts_with(TOKEN_PREFIX)
}

/// A token as people carry it: one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its enrolment.
    pub enrolment: Enrolment,
    /// Metadata servers of the cluster.
    pub servers: Vec<SocketAddr>,
}

impl Token {
    /// The word.
    pub fn to_text(&self) -> String {
        let servers: Vec<String> = self.servers.iter().map(SocketAddr::to_string).collect();
        let Enrolment { name, secret, .. } = &self.enrolment;
        format!("{FIRST_WORD}:{}:{}:{}", name.as_str(), secret.to_hex(), servers.join(","))
    }

    /// Reads a word; the error says what is wrong with it, without showing any of it.
    pub fn parse(text: &str) -> Result<Token, String> {
        let mut parts = text.trim().splitn(4, ':');
        if parts.next() != Some(FIRST_WORD) {
            return Err(format!("it does not begin with {FIRST_WORD}"));
        }
        let name = parts.next().and_then(EnrolmentName::new).filter(is_token);
        let secret = Key::from_hex(parts.next().unwrap_or_default());
        let servers = parts.next().unwrap_or_default().split(',').map(str::parse).collect();
        match (name, secret, servers) {
            (Some(name), Ok(secret), Ok(servers)) => {
                Ok(Token { enrolment: Enrolment { name, squash: Squash::None, secret }, servers })
            }
            (None, ..) => Err("its name is none of a token".to_owned()),
            (_, Err(found), _) => Err(format!("its secret is {found} instead of 64 hex digits")),
            (.., Err(_)) => Err("its addresses are none".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        let name = EnrolmentName::new("join.0123abcd").unwrap();
        let enrolment = Enrolment { name, squash: Squash::None, secret: Key::new([7; 32]) };
        Token {
            enrolment,
            servers: vec!["10.0.0.1:9101".parse().unwrap(), "[fd00::1]:9101".parse().unwrap()],
        }
    }

    #[test]
    fn a_token_is_one_word_that_is_read_back() {
        let text = token().to_text();
        assert!(!text.contains(char::is_whitespace), "{text}");
        assert_eq!(Token::parse(&format!(" {text}\n")), Ok(token()));
    }

    #[test]
    fn what_is_no_token_is_told_without_its_secret() {
        let text = token().to_text();
        let secret = "07".repeat(32);
        for (wrong, said) in [
            ("", "does not begin"),
            (&text[..30], "instead of 64 hex digits"),
            (&text.replace("join.", "jo1n."), "name is none"),
            (&text.replace("10.0.0.1:9101", "host"), "addresses are none"),
        ] {
            let error = Token::parse(wrong).unwrap_err();
            assert!(error.contains(said) && !error.contains(&secret), "{wrong}: {error}");
        }
    }
}
