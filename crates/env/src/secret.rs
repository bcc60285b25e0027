//! Secrets in files: 32 bytes as 64 hex digits, readable by their owner only.

use crate::random_bytes;
use bearing_proto::enrolment::Enrolment;
use bearing_proto::keys::Key;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A key of 32 bytes. It never prints.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// Why a secret file was not read or made.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file could not be opened, read or written.
    #[error("{doing} secret file {}: {source}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The content is no key.
    #[error("secret file {}: expected 64 hex digits or a named enrolment, found {found}; make a new one or copy it again", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is there instead. Never the content itself.
        found: String,
    },
    /// Others may read or change it.
    #[error("secret file {} has mode {mode:04o}, so others can use the secret; run: chmod 600 {}", path.display(), path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

impl Secret {
    /// A new random secret.
    pub fn random() -> Secret {
        Secret(random_bytes())
    }

    /// The bytes of the key.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads a secret file. One that anybody else may read or write is refused.
    pub fn read(path: &Path) -> Result<Secret, SecretError> {
        let text = read_private(path)?;
        let key = Key::from_hex(text.trim());
        key.map(|key| Secret(*key.bytes()))
            .map_err(|found| SecretError::Content { path: path.to_owned(), found })
    }

    /// Makes a new random secret in a new file of mode 0600. An existing file is an error: it is never
    /// overwritten.
    pub fn create(path: &Path) -> Result<Secret, SecretError> {
        let secret = Secret::random();
        write_private(path, &Enrolment::from(Key::new(secret.0)).to_text())?;
        Ok(secret)
    }

    /// Reads the file, or makes it if it is not there.
    pub fn read_or_create(path: &Path) -> Result<Secret, SecretError> {
        match Secret::create(path) {
            Err(SecretError::File { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                Secret::read(path)
            }
            other => other,
        }
    }
}

/// Reads the file of an enrolment, named or not. One that anybody else may read or write is refused.
pub fn read_enrolment(path: &Path) -> Result<Enrolment, SecretError> {
    let text = read_private(path)?;
    Enrolment::parse(&text).map_err(|found| SecretError::Content { path: path.to_owned(), found })
}

/// Writes a text into a new file of mode 0600. An existing file is an error: it is never overwritten.
pub fn write_private(path: &Path, text: &str) -> Result<(), SecretError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // Its name too: what others seal with it must not outlive it.
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|source| SecretError::File { doing: "create", path: path.to_owned(), source })
}

fn read_private(path: &Path) -> Result<String, SecretError> {
    let failed = |source| SecretError::File { doing: "read", path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(SecretError::Open { path: path.to_owned(), mode });
    }
    let mut text = Vec::new();
    // More than any secret may have, so that a longer file is seen to be longer.
    file.take(1024).read_to_end(&mut text).map_err(failed)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

impl From<[u8; 32]> for Secret {
    fn from(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_made_once_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cluster.key");
        let made = Secret::read_or_create(&path).unwrap();
        assert_eq!(Secret::read_or_create(&path).unwrap(), made);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert!(Secret::create(&path).is_err(), "never overwritten");
        assert_eq!(Secret::read(&path).unwrap(), made);
        assert_eq!(format!("{made:?}"), "Secret(..)");
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        Secret::create(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let message = Secret::read(&path).unwrap_err().to_string();
        assert!(message.contains("0640") && message.contains("chmod 600"), "{message}");
    }

    #[test]
    fn what_is_no_key_is_refused_without_showing_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        for (content, expected) in
            [("abc", "3 characters"), (&"g".repeat(64), "no hex digits"), (&"a".repeat(90), "90 characters")]
        {
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            let message = Secret::read(&path).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains(content), "{message}");
        }
        let missing = Secret::read(&directory.path().join("none")).unwrap_err().to_string();
        assert!(missing.starts_with("read secret file"), "{missing}");
    }
}
