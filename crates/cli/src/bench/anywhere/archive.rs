//! The archive that `tar` unpacks: small files in directories of a hundred, the same bytes every time.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Files in one directory.
const FILES_PER_DIRECTORY: u32 = 100;
/// A tar archive consists of blocks.
const BLOCK_BYTES: usize = 512;

/// The size of a file by its number: 512 bytes to 8 KiB, about 4 KiB on average, as sources are.
pub fn size_of(number: u32) -> u64 {
    512 + u64::from(number.wrapping_mul(2_654_435_761) >> 16) % 7_680
}

/// The bytes of so many files.
pub fn bytes_of(count: u32) -> u64 {
    (0..count).map(size_of).sum()
}

/// Writes the archive.
pub fn write(path: &Path, count: u32) -> Result<()> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut out = BufWriter::new(file);
    let mut put = || -> std::io::Result<()> {
        out.write_all(&header("tree/", 0, b'5'))?;
        for number in 0..count {
            let directory = number / FILES_PER_DIRECTORY;
            if number % FILES_PER_DIRECTORY == 0 {
                out.write_all(&header(&format!("tree/dir.{directory}/"), 0, b'5'))?;
            }
            let size = size_of(number) as usize;
            out.write_all(&header(&format!("tree/dir.{directory}/file.{number}"), size as u64, b'0'))?;
            let mut content = format!("file {number}\n").into_bytes();
            content.resize(size, b'.');
            content.resize(size.next_multiple_of(BLOCK_BYTES), 0);
            out.write_all(&content)?;
        }
        out.write_all(&[0; 2 * BLOCK_BYTES])?;
        out.flush()
    };
    put().with_context(|| format!("write {}", path.display()))
}

/// A header of POSIX's ustar format (IEEE Std 1003.1, pax, "ustar Interchange Format").
fn header(name: &str, size: u64, kind: u8) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, if kind == b'5' { b"0000755" } else { b"0000644" });
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, format!("{:011o}", 1_700_000_000).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn tar_unpacks_what_was_meant() {
        let directory = tempfile::tempdir().expect("a directory");
        let archive = directory.path().join("a.tar");
        write(&archive, 150).expect("written");
        let status = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(directory.path()).status();
        assert!(status.expect("tar is there").success());
        let size = |number: u32| {
            directory.path().join(format!("tree/dir.{}/file.{number}", number / 100)).metadata()
        };
        let sizes: Vec<u64> = (0..150).map(|number| size(number).expect("a file").len()).collect();
        assert_eq!(sizes, (0..150).map(size_of).collect::<Vec<u64>>());
        assert_eq!(sizes.iter().sum::<u64>(), bytes_of(150));
        assert!(sizes.iter().all(|size| (512..8_192).contains(size)));
    }
}
