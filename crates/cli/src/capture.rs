//! `--capture FILE` and `decode FILE`: writing and reading captures.

use anyhow::{Context, Result};
use rpcrdma_capture::{
    Capture, CaptureWriter, Options, WriteError, Written, capture, read_capture,
    show::{Json, Ladder, Style, Text},
};
use rpcrdma_env::TokioClock;
use rpcrdma_iwarp::{Direction, Tap, TapStream};
use std::{
    fs::File,
    io::{BufReader, BufWriter, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

/// A capture that is being written by a thread of its own. It ends when all who hold it are gone, or when told to.
pub(crate) struct Capturing {
    tap: Arc<Capture>,
    thread: Mutex<Option<JoinHandle<Result<Written, WriteError>>>>,
    path: PathBuf,
}

/// Makes the file and starts to capture.
pub(crate) fn start(path: &Path) -> Result<Arc<Capturing>> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let (tap, writer) = capture(Arc::new(TokioClock::new()), Options::default());
    let thread = std::thread::Builder::new()
        .name("rpcrdma-capture".into())
        .spawn(move || CaptureWriter::run(writer, file))
        .context("cannot start a thread")?;
    Ok(Arc::new(Capturing { tap, thread: Mutex::new(Some(thread)), path: path.to_owned() }))
}

impl Capturing {
    /// What iWARP is to tell what it sees.
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
        if written.dropped_octets > 0 || written.dropped_connections > 0 {
            eprintln!(
                "rpcrdma: {path}: {} octets and {} connections are not in it, the disk was too slow",
                written.dropped_octets, written.dropped_connections
            );
        }
        Ok(())
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            eprintln!("rpcrdma: {error:#}");
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
}

/// Shows what a capture file holds.
pub(crate) fn show(path: &Path, shown: Shown, output: &mut impl Write) -> Result<()> {
    let file = BufReader::new(File::open(path).with_context(|| path.display().to_string())?);
    let out = BufWriter::new(output);
    let read = match shown {
        Shown::Text => read_capture(file, &mut Text::new(out)),
        Shown::Json => read_capture(file, &mut Json::new(out)),
        Shown::Ladder(style) => read_capture(file, &mut Ladder::new(out, style)),
    };
    match read {
        Ok(_) => Ok(()),
        Err(rpcrdma_capture::ReadError::Sink(error)) => Err(error.into()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}
