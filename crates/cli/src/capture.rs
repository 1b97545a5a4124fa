//! `--capture FILE` and `decode FILE`: writing and reading captures.
//!
//! A capture holds all data that pass, so only its owner may read the file, and it must be new: an existing file is
//! overwritten only with `--force`, and only if it is a regular file of the caller's own that has no other name. No
//! symbolic link is followed. An error of the file ends the capture and no connection; the command then ends with exit
//! code 1.

use crate::mounts::Location;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rpcrdma_capture::{
    Capture, CaptureWriter, Options, Sink, WriteError, Written, capture, read_capture,
    show::{Filtered, Json, Ladder, Statistics, Style, Text, Wanted},
};
use rpcrdma_env::TokioClock;
use rpcrdma_iwarp::{Direction, Tap, TapStream};
use rustix::fs::OFlags;
use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, BufReader, BufWriter, Read, Write},
    net::SocketAddr,
    os::unix::ffi::OsStrExt,
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread::JoinHandle,
};

/// What the user says of a capture. Clones share the capture once it has started.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CaptureArgs {
    /// Write everything that passes over software iWARP to this new pcapng file, which only its owner can read
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Let --capture overwrite an existing file, if it is a regular file of yours with no other name
    #[arg(long, requires = "capture")]
    force: bool,
    #[arg(skip)]
    started: Arc<OnceLock<Arc<Capturing>>>,
}

impl CaptureArgs {
    /// Whether the user asks for a capture.
    pub(crate) fn is_some(&self) -> bool {
        self.capture.is_some()
    }

    /// Starts the capture, if the user asks for one and it has not started.
    pub(crate) fn start(&self) -> Result<Option<Arc<Capturing>>> {
        let Some(path) = &self.capture else { return Ok(None) };
        if let Some(started) = self.started.get() {
            return Ok(Some(started.clone()));
        }
        let capturing = start(path, self.force)?;
        Ok(Some(self.started.get_or_init(|| capturing).clone()))
    }

    /// The same for a server of `directories`, whose clients must not reach the file.
    pub(crate) fn start_outside<'a>(
        &self,
        directories: impl IntoIterator<Item = &'a Path>,
    ) -> Result<Option<Arc<Capturing>>> {
        if let Some(path) = &self.capture {
            directories.into_iter().try_for_each(|directory| refuse_inside(path, directory))?;
        }
        self.start()
    }

    /// Ends the capture, if there is one, and reports errors.
    pub(crate) fn finish(&self) -> Result<()> {
        self.started.get().map_or(Ok(()), |capturing| capturing.finish())
    }
}

/// Refuses a file that would lie in a directory or below it.
///
/// # Errors
/// If it would, or if that is unknown.
pub(crate) fn refuse_inside(path: &Path, directory: &Path) -> Result<()> {
    let id = |path: &Path| -> Result<(u64, u64)> {
        let metadata = std::fs::metadata(path).with_context(|| path.display().to_string())?;
        Ok((metadata.dev(), metadata.ino()))
    };
    let served = id(directory)?;
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let above = above.canonicalize().with_context(|| above.display().to_string())?;
    // By identity: the directory may have several paths.
    for above in above.ancestors() {
        ensure!(
            id(above)? != served,
            "{}: a capture in the directory that is served would be open to clients, and grow by being read",
            path.display()
        );
    }
    // A part of it may be mounted elsewhere.
    let location = |path: &Path| path.canonicalize().ok().and_then(|path| Location::of(&path));
    let is_inside = location(&above).zip(location(directory)).is_some_and(|(above, served)| above.is_in(&served));
    ensure!(
        !is_inside,
        "{}: this lies in the directory that is served, by another mount: a capture there would be open to clients, and grow by being read",
        path.display()
    );
    Ok(())
}

/// Opens the file of a capture.
fn create(path: &Path, force: bool) -> Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(flags);
    match options.clone().create_new(true).open(path) {
        Ok(file) => return Ok(file),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
        Err(_) if !force => bail!("exists already; --force writes over it"),
        Err(_) => {}
    }
    let what = "exists already; only a regular file of your own that has no other name is written over";
    let file = options.open(path).context(what)?;
    let metadata = file.metadata()?;
    let own = metadata.uid() == rustix::process::geteuid().as_raw();
    ensure!(metadata.is_file() && metadata.nlink() == 1 && own, what);
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    Ok(file)
}

/// A capture that a thread of its own writes. It ends when all its users are gone, or on request.
#[derive(Debug)]
pub(crate) struct Capturing {
    tap: Arc<Capture>,
    thread: Mutex<Option<JoinHandle<Result<Written, WriteError>>>>,
    path: PathBuf,
}

/// Makes the file and starts to capture.
fn start(path: &Path, force: bool) -> Result<Arc<Capturing>> {
    let file = create(path, force).with_context(|| path.display().to_string())?;
    let (tap, writer) = capture(Arc::new(TokioClock::new()), Options::default());
    let shown = path.display().to_string();
    let thread = std::thread::Builder::new()
        .name("rpcrdma-capture".into())
        .spawn(move || {
            CaptureWriter::run(writer, file).inspect_err(|error| {
                // A server goes on, and gives at its end only the reason for its exit code.
                let error: &dyn std::error::Error = error;
                tracing::error!(path = shown, error, "the capture has ended");
            })
        })
        .context("cannot start a thread")?;
    Ok(Arc::new(Capturing { tap, thread: Mutex::new(Some(thread)), path: path.to_owned() }))
}

impl Capturing {
    /// The tap through which iWARP reports what it sees.
    pub(crate) fn tap(self: &Arc<Self>) -> Arc<dyn Tap> {
        Arc::new(Holding(self.clone()))
    }

    /// Ends the capture and waits for the file.
    pub(crate) fn finish(&self) -> Result<()> {
        self.tap.finish();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return Ok(()) };
        let path = self.path.display();
        let written = thread.join().ok().with_context(|| format!("{path}: the thread that writes it has panicked"))?;
        let written = written.with_context(|| path.to_string())?;
        if written.dropped_bytes > 0 || written.dropped_connections > 0 {
            crate::failure::warning(&format!(
                "{path}: {} bytes and {} connections are not in it, the disk was too slow",
                written.dropped_bytes, written.dropped_connections
            ));
        }
        Ok(())
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            crate::failure::tell(&error);
        }
    }
}

/// A tap whose connections keep the capture going until they are closed.
struct Holding(Arc<Capturing>);

impl Tap for Holding {
    fn connection(&self, local: SocketAddr, peer: SocketAddr, initiator: bool) -> Box<dyn TapStream> {
        Box::new(HoldingStream { stream: self.0.tap.connection(local, peer, initiator), _capturing: self.0.clone() })
    }
}

/// Fields are dropped in this order: the end of the connection is captured before the capture ends.
struct HoldingStream {
    stream: Box<dyn TapStream>,
    _capturing: Arc<Capturing>,
}

impl TapStream for HoldingStream {
    fn octets(&mut self, direction: Direction, octets: &[u8]) {
        self.stream.octets(direction, octets);
    }
}

/// How a capture is shown.
#[derive(Clone, Copy)]
pub(crate) enum Shown {
    Text,
    Json,
    Ladder(Style),
    Summary { json: bool },
}

/// How a capture is shown, and which part of it.
pub(crate) struct Showing {
    pub(crate) shown: Shown,
    pub(crate) wanted: Wanted,
}

/// Stands for standard input where a file is named.
const STANDARD_INPUT: &str = "-";

/// Shows what a capture file holds, or `input` for `-`.
pub(crate) fn show(path: &Path, input: impl Read, showing: &Showing, output: &mut impl Write) -> Result<()> {
    let out = BufWriter::new(output);
    let mut sink: Box<dyn Sink + '_> = match showing.shown {
        Shown::Text => Box::new(Text::new(out)),
        Shown::Json => Box::new(Json::new(out)),
        Shown::Ladder(style) => Box::new(Ladder::new(out, style)),
        Shown::Summary { json: false } => Box::new(Statistics::text(out)),
        Shown::Summary { json: true } => Box::new(Statistics::json(out)),
    };
    if !showing.wanted.is_everything() {
        sink = Box::new(Filtered::new(showing.wanted.clone(), sink));
    }
    let (read, name) = if path == Path::new(STANDARD_INPUT) {
        (read_capture(input, &mut *sink), "standard input".to_owned())
    } else {
        let name = crate::names::escaped(path.as_os_str().as_bytes());
        let file = BufReader::new(File::open(path).with_context(|| name.clone())?);
        (read_capture(file, &mut *sink), name)
    };
    match read {
        Ok(summary) => {
            for (protocol, packets) in summary.unread_rdma() {
                let (noun, verb) = if packets == 1 { ("packet", "was") } else { ("packets", "were") };
                crate::failure::warning(&format!(
                    "{name}: {packets} {noun} of {protocol} {verb} not read: this version reads iWARP and TCP"
                ));
            }
            Ok(())
        }
        Err(rpcrdma_capture::ReadError::Sink(error)) => Err(error.into()),
        Err(error) => Err(error).context(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_capture_is_a_new_file_of_ones_own() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        create(&path("new"), false).unwrap();
        assert_eq!(mode(&path("new")), 0o600);
        for (name, contents) in [("old", "old"), ("precious", "precious"), ("two", "two")] {
            fs::write(path(name), contents).unwrap();
        }
        fs::set_permissions(path("old"), Permissions::from_mode(0o644)).unwrap();
        symlink(path("precious"), path("link")).unwrap();
        symlink(path("nowhere"), path("dangling")).unwrap();
        fs::hard_link(path("two"), path("too")).unwrap();
        for name in ["old", "link", "dangling", "two"] {
            let error = create(&path(name), false).unwrap_err().to_string();
            assert!(error.contains("--force"), "{name}: {error}");
        }
        for name in ["link", "dangling", "two", "."] {
            assert!(create(&path(name), true).is_err(), "{name}");
        }
        assert!(create(Path::new("/dev/null"), true).is_err());
        assert_eq!(fs::read(path("precious")).unwrap(), b"precious");
        assert_eq!(fs::read(path("two")).unwrap(), b"two");
        assert!(!path("nowhere").exists());
        assert_eq!(fs::read(path("old")).unwrap(), b"old");
        create(&path("old"), true).unwrap();
        assert_eq!((mode(&path("old")), fs::read(path("old")).unwrap().len()), (0o600, 0));
    }

    #[test]
    fn a_capture_in_the_served_directory_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let served = scratch.path().join("served");
        fs::create_dir_all(served.join("below")).unwrap();
        fs::create_dir(scratch.path().join("served-not")).unwrap();
        symlink(served.join("below"), scratch.path().join("link")).unwrap();
        for inside in ["served/file", "served/below/file", "served-not/../served/file", "link/file"] {
            assert!(refuse_inside(&scratch.path().join(inside), &served).is_err(), "{inside}");
        }
        refuse_inside(&scratch.path().join("served-not/file"), &served).unwrap();
        refuse_inside(&scratch.path().join("file"), &served).unwrap();
        assert!(refuse_inside(&scratch.path().join("none/file"), &served).is_err(), "nobody can say");
    }
}
