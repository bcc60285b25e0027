//! `top`: what a cluster does right now, from the pages of metrics of all its daemons.

mod scrape;
mod view;

use crate::ask;
use crate::connect;
use crate::failure::Unreachable;
use crate::names::time_text;
use crate::sessions::{self, SessionView};
use crate::target::Directory;
use anyhow::{Context, Result, bail};
use bearing_env::Clock;
use bearing_mount::{Caller, Mount};
use bearing_proto::client::Handle;
use bearing_proto::coordinator::{AskCall, TellBody};
use bearing_proto::operation::Operation;
use bearing_server::cluster::{Cluster, Daemon, Layout};
use bearing_types::{NodeId, Position};
use clap::Args;
use scrape::Scrape;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use view::{Changes, Clients, Look, Part, Paths};

const EXAMPLES: &str = "\
Examples:
  bearing top                     a look every second; ^C ends it
  bearing top --once              one look of one second, for scripts
  bearing top | tee look.txt      without a terminal: one look after the other

Any host of the cluster shows all of it: daemons are asked over the cluster's own network, whether or not
they show metrics to Prometheus. P50 and P99 are how long half and 99 of 100 requests took at most, as
servers see it. Directories and sessions are those of the last seconds.";

/// `top`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Top {
    /// Where the cluster lies.
    #[command(flatten)]
    pub directory: Directory,
    /// Print one look and end
    #[arg(long)]
    pub once: bool,
}

const INTERVAL: Duration = Duration::from_secs(1);
/// How long a daemon may take: the next look is due then.
const PATIENCE: Duration = Duration::from_millis(900);
/// Paths change: after so many looks they are asked for again.
const LOOKS_OF_A_PATH: u32 = 10;
/// No directory is deeper in the tree, as far as this program asks.
const DEPTH_MAX: usize = 256;
/// Of each table without a terminal.
const ROWS: usize = 10;

/// Runs `top`. It fails (exit code 3) when nobody answers.
pub fn top(flags: &Top) -> Result<()> {
    let layout = flags.directory.layout()?;
    let cluster = ask::current(&layout, &Cluster::read(&layout.cluster_file())?, PATIENCE);
    let mut watch = Watch {
        layout,
        daemons: cluster.daemons(),
        mount: None,
        paths: Paths::new(),
        looks: 0,
        clients: Clients::new(),
    };
    let result = match !flags.once && io::stdout().is_terminal() {
        true => on_screen(&mut watch),
        false => in_lines(&mut watch, flags.once),
    };
    watch.mount.iter().try_for_each(|mount| connect::end(mount))?;
    result
}

/// A look after the other, until the program is told to stop or nobody reads any more.
fn in_lines(watch: &mut Watch, once: bool) -> Result<()> {
    let events = events()?;
    let mut before = watch.look()?;
    while next(&events)? != Event::Stop {
        let after = watch.look()?;
        let text = watch.show(&before, &after, None).join("\n");
        writeln!(io::stdout(), "{text}\n")?;
        before = after;
        if once {
            break;
        }
    }
    Ok(())
}

/// The terminal's other screen, given back whatever happens.
struct Screen;

impl Screen {
    fn take() -> io::Result<Screen> {
        write!(io::stdout(), "\x1b[?1049h\x1b[?25l")?;
        Ok(Screen)
    }

    /// Writes over what is there, so that nothing flickers.
    fn draw(&self, lines: &[String]) -> io::Result<()> {
        let text: String = lines.iter().map(|line| format!("{line}\x1b[K\r\n")).collect();
        let mut out = io::stdout().lock();
        write!(out, "\x1b[H{}\x1b[J", text.trim_end_matches("\r\n"))?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write!(io::stdout(), "\x1b[?25h\x1b[?1049l").and_then(|()| io::stdout().flush());
    }
}

fn on_screen(watch: &mut Watch) -> Result<()> {
    let events = events()?;
    let mut before = watch.look()?;
    let screen = Screen::take()?;
    let mut shown = vec!["the first look is ready in a second ...".to_owned()];
    loop {
        screen.draw(&shown)?;
        match next(&events)? {
            Event::Stop => return Ok(()),
            Event::Resized => {}
            Event::Due => {
                let after = watch.look()?;
                shown = watch.show(&before, &after, Some(size()));
                before = after;
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Due,
    Resized,
    Stop,
}

/// When to look, and what happens meanwhile. Of looks that are late one is made up for.
fn events() -> Result<Receiver<Event>> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGWINCH]).context("wait for signals")?;
    let (tell, events) = channel();
    thread::spawn(move || {
        for signal in signals.forever() {
            let event = if signal == SIGWINCH { Event::Resized } else { Event::Stop };
            if tell.send(event).is_err() {
                return;
            }
        }
    });
    Ok(events)
}

fn next(events: &Receiver<Event>) -> Result<Event> {
    match events.recv_timeout(INTERVAL) {
        Ok(event) => Ok(event),
        Err(RecvTimeoutError::Timeout) => Ok(Event::Due),
        Err(RecvTimeoutError::Disconnected) => bail!("nobody waits for signals any more"),
    }
}

/// Columns and rows of the terminal.
fn size() -> (usize, usize) {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call fills the struct that it is given, or fails.
    let result = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    match result == 0 && size.ws_row > 0 {
        true => (usize::from(size.ws_col), usize::from(size.ws_row)),
        false => (80, 24),
    }
}

/// Who is watched, and what is known of whom they name.
struct Watch {
    layout: Layout,
    daemons: Vec<Daemon>,
    /// A client like others, made when there is a directory whose path is to be found.
    mount: Option<Arc<Mount>>,
    paths: Paths,
    /// Since the paths were found.
    looks: u32,
    clients: Clients,
}

impl Watch {
    /// Asks all daemons at the same time.
    fn look(&self) -> Result<Look> {
        let addresses: Vec<_> = self.daemons.iter().map(|daemon| daemon.address).collect();
        let told = ask::each(&self.layout, &addresses, &AskCall::Metrics, PATIENCE);
        let now = Clock.mono();
        let mut failed = None;
        let mut look = Look::new();
        for (daemon, told) in self.daemons.iter().zip(told) {
            match told {
                Ok(TellBody::Metrics(text)) => {
                    _ = look.insert(daemon.name.to_string(), Scrape::read(now, &text))
                }
                Ok(other) => failed = Some(anyhow::anyhow!("{} answered {other:?}", daemon.name)),
                Err(error) => failed = Some(error),
            }
        }
        match (look.is_empty(), failed) {
            (true, Some(error)) => {
                let dir = self.layout.root().display();
                bail!(Unreachable(format!(
                    "no daemon answers ({error:#}); `bearing status --dir {dir}` says who runs"
                )))
            }
            _ => Ok(look),
        }
    }

    /// The lines of a screen of this size.
    fn show(&mut self, before: &Look, after: &Look, size: Option<(usize, usize)>) -> Vec<String> {
        let changes = Changes::new(before, after);
        self.find_paths(&changes);
        self.find_clients(&changes);
        let names: Vec<String> = self.daemons.iter().map(|daemon| daemon.name.to_string()).collect();
        let mut lines = vec![format!(
            "{}   {} of {} daemons answer   {}",
            self.layout.root().display(),
            after.len(),
            names.len(),
            time_text(Clock.now().wall)
        )];
        lines.extend(view::unwell(after, &names));
        lines.push(String::new());
        lines.extend(changes.summary());
        let parts = [
            changes.operations(),
            changes.tablets(),
            changes.directory_part(&self.paths),
            changes.session_part(&self.clients),
        ];
        // Each has an empty line and a header.
        let room = size.map_or(usize::MAX, |(_, rows)| rows.saturating_sub(lines.len() + 2 * parts.len()));
        for (part, rows) in parts.iter().zip(rows_of(&parts, room)) {
            lines.push(String::new());
            lines.extend(part.lines(rows));
        }
        if let Some((columns, rows)) = size {
            lines.truncate(rows);
            lines.iter_mut().for_each(|line| *line = line.chars().take(columns).collect());
        }
        lines
    }

    fn find_paths(&mut self, changes: &Changes<'_>) {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_OF_A_PATH) {
            self.paths.clear();
        }
        for (node, home, _) in changes.directories().into_iter().take(ROWS) {
            if self.paths.contains_key(&node) {
                continue;
            }
            if self.mount.is_none() {
                // Without a client there are numbers instead of paths.
                self.mount = connect::connect(self.layout.root().as_os_str(), None).ok();
            }
            let directory = handle(&node, &home);
            if let Some(path) =
                self.mount.as_deref().zip(directory).and_then(|(mount, at)| path_of(mount, at))
            {
                self.paths.insert(node, path);
            }
        }
    }

    fn find_clients(&mut self, changes: &Changes<'_>) {
        if changes.sessions().iter().all(|(session, _)| self.clients.contains_key(session)) {
            return;
        }
        let metadata = self.daemons.iter().filter(|daemon| daemon.name.kind_word() == "metadata");
        let servers: Vec<_> = metadata.map(|daemon| daemon.address).collect();
        let (views, _) = sessions::all(&self.layout, &servers, PATIENCE);
        // Only those that are: others come and go.
        self.clients = views.iter().filter_map(|view| Some((view.session.clone(), who(view)?))).collect();
    }
}

fn who(view: &SessionView) -> Option<String> {
    let (host, process) = (view.host.as_ref()?, view.process?);
    Some(match &view.path {
        Some(path) => format!("{host}:{path} (process {process})"),
        None => format!("{host}, not mounted (process {process})"),
    })
}

/// A handle as metrics name it.
fn handle(node: &str, home: &str) -> Option<Handle> {
    let node = NodeId(node.strip_prefix('n')?.parse().ok()?);
    Some(Handle { node, home: Position(u64::from_str_radix(home.strip_prefix('@')?, 16).ok()?) })
}

/// The path of a directory: its name, and those of all that it lies in.
fn path_of(mount: &Mount, directory: Handle) -> Option<Vec<u8>> {
    let (mut path, mut above) = (Vec::new(), directory);
    for _ in 0..DEPTH_MAX {
        let (parent, name) = mount.named(Operation::Place { directory: above }).ok()?;
        if parent.node == above.node {
            return Some(if path.is_empty() { b"/".to_vec() } else { path });
        }
        path = [b"/", &name[..], &path].concat();
        above = parent;
    }
    None
}

/// How many rows each part gets: none more than it has, and what one does not need the others have.
fn rows_of(parts: &[Part; 4], room: usize) -> [usize; 4] {
    let mut rows = [0; 4];
    let mut left = room;
    while left > 0 {
        let given: usize = rows.iter().sum();
        for (rows, part) in rows.iter_mut().zip(parts) {
            if left > 0 && *rows < part.rows().min(ROWS) {
                (*rows, left) = (*rows + 1, left - 1);
            }
        }
        if rows.iter().sum::<usize>() == given {
            break;
        }
    }
    rows
}
