//! What this client may do with a file that it has open, and how it shows that to servers.

use bearing_proto::grant::{Admission, OpenToken};
use bearing_types::Credentials;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenFor {
    read: Option<OpenToken>,
    write: Option<OpenToken>,
    /// Who opened it for reading last without asking.
    unasked: Option<Credentials>,
}

impl OpenFor {
    /// A token came.
    pub fn on_token(&mut self, token: OpenToken) {
        if token.rights.reads() {
            (self.read, self.unasked) = (Some(token), None);
        }
        if token.rights.writes() {
            self.write = Some(token);
        }
    }

    /// It was opened for reading without asking.
    pub fn opened_unasked(&mut self, who: &Credentials) {
        if self.read.is_none() {
            self.unasked = Some(who.clone());
        }
    }

    /// The right to write.
    pub fn write(&self) -> Option<OpenToken> {
        self.write
    }

    /// What admits to the file's extents: to read them, if that is possible.
    pub fn admission(&self) -> Option<Admission> {
        let user = || self.unasked.clone().map(Admission::User);
        self.read.map(Admission::Open).or_else(user).or(self.write.map(Admission::Open))
    }

    /// Who opened it for reading without asking, and has no token yet.
    pub fn unasked(&self) -> Option<&Credentials> {
        self.unasked.as_ref()
    }
}
