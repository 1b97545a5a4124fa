//! Turns the answers of the libraries' functions into results.

use std::{ffi::c_int, io};

/// The result of a function that returns an error's number or, as the connection manager's functions do, -1 and the
/// number in `errno`. Some providers return the number negated.
pub(crate) fn check(answer: c_int) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number.saturating_abs())),
    }
}

/// Logs an error of a tear-down, although the program can do nothing about it.
pub(crate) fn report(what: &'static str, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(%error, "{what} failed");
    }
}
