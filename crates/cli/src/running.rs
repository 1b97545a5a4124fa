//! How a client command runs: on one thread, until it is done and its captures are written.

use crate::{capture::CaptureArgs, ending, failure};
use anyhow::Result;

/// Runs a client command on this thread.
pub(crate) fn block_on<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(ending::after(command))
}

/// The same, and ends its capture: one that could not be written is a failure of the command.
pub(crate) fn captured<T>(capture: &CaptureArgs, command: impl Future<Output = Result<T>>) -> Result<T> {
    // The runtime ends before the capture does: the ends of its connections belong into it.
    let done = block_on(command);
    match capture.finish() {
        Err(error) if done.is_err() => failure::tell(&error),
        finished => finished?,
    }
    done
}
