//! How far long work has come, on standard error, when a person looks on: nothing is drawn into files and
//! pipes.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Work of which the end is known or not. It vanishes with this value.
pub struct Progress(ProgressBar);

impl Progress {
    /// Bytes on their way; `total`: how many, if that is known.
    pub fn bytes(what: &str, total: Option<u64>, is_quiet: bool) -> Progress {
        let template = match total {
            Some(_) => "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            None => "{msg} {bytes}, {bytes_per_sec}",
        };
        Progress::new(what, total, template, is_quiet)
    }

    /// Entries, of which nobody knows how many there are.
    pub fn entries(what: &str, is_quiet: bool) -> Progress {
        Progress::new(what, None, "{spinner} {msg} {human_pos}, {per_sec}", is_quiet)
    }

    fn new(what: &str, total: Option<u64>, template: &str, is_quiet: bool) -> Progress {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        if is_quiet {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    /// So much more is done.
    pub fn add(&self, amount: u64) {
        self.0.inc(amount);
    }

    /// What is being done now.
    pub fn say(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_well_formed() {
        Progress::bytes("a", Some(1), true).add(1);
        Progress::bytes("a", None, true).say("b");
        Progress::entries("a", true).add(1);
    }
}
