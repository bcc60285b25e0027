//! How kinds, modes, times and names are written for people.

use bearing_mount::quoted;
use bearing_types::{FileType, Mode, Wall};
use std::borrow::Cow;
use std::io::IsTerminal;

/// The word for a kind of node.
pub fn kind_word(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "char-device",
        FileType::BlockDevice => "block-device",
    }
}

/// The letter that ls(1) gives a kind of node.
pub fn kind_letter(file_type: FileType) -> char {
    match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
    }
}

/// Permission bits as ls(1) writes them.
pub fn mode_text(mode: Mode) -> String {
    let triple = |shift: u32, special: u16, set: char, set_only: char| {
        let bits = mode.bits() >> shift & 7;
        let execute = match (bits & 1 != 0, mode.has(special)) {
            (true, true) => set,
            (false, true) => set_only,
            (true, false) => 'x',
            (false, false) => '-',
        };
        let letter = |bit, letter| if bits & bit != 0 { letter } else { '-' };
        [letter(4, 'r'), letter(2, 'w'), execute]
    };
    let owner = triple(6, Mode::SETUID, 's', 'S');
    let group = triple(3, Mode::SETGID, 's', 'S');
    let others = triple(0, Mode::STICKY, 't', 'T');
    owner.iter().chain(&group).chain(&others).collect()
}

/// A time as date and time of day, in UTC.
pub fn time_text(time: Wall) -> String {
    let seconds = time.0.div_euclid(1_000_000_000);
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, date) = civil(day);
    format!(
        "{year:04}-{month:02}-{date:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and date of a day counted from 1970-01-01, in the Gregorian calendar (H. Hinnant,
/// "chrono-compatible low-level date algorithms": years begin in March, eras have 400 years and 146,097
/// days).
fn civil(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let date = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, date)
}

/// A path for a message to a person: quoted as a shell would take it, if it needs to be.
pub fn shown(path: &[u8]) -> String {
    quoted(path)
}

/// A path in JSON, which knows no other bytes than UTF-8.
pub fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// How listings write names: for a person quoted, so that no name can do anything to the terminal; for
/// programs byte by byte, as ls(1) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// To a terminal.
    Quoted,
    /// To anything else.
    Raw,
}

impl Names {
    /// What an output wants.
    pub fn to(output: &impl IsTerminal) -> Names {
        if output.is_terminal() { Names::Quoted } else { Names::Raw }
    }

    /// A name, or a path.
    pub fn written(self, name: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Names::Quoted => Cow::Owned(quoted(name).into_bytes()),
            Names::Raw => Cow::Borrowed(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_ls_does() {
        for (bits, expected) in
            [(0o755, "rwxr-xr-x"), (0o4711, "rws--x--x"), (0o1777, "rwxrwxrwt"), (0o2640, "rw-r-S---")]
        {
            assert_eq!(mode_text(Mode::new(bits)), expected);
        }
    }

    #[test]
    fn times_are_dates_also_before_1970_and_in_leap_years() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_219_199, "2026-11-20 23:59:59 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(time_text(Wall(seconds * 1_000_000_000)), expected);
        }
    }
}
