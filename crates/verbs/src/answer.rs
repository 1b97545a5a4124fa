//! What becomes of the answers of the libraries' functions.

use std::{ffi::c_int, io};

/// The answer of a function that returns an error's number or, by the connection manager's custom, -1 and the number
/// aside. Some providers return the number negated.
pub(crate) fn check(answer: c_int) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number.saturating_abs())),
    }
}

/// Reports an error of a tear-down, although the program can do nothing about it.
pub(crate) fn report(what: &'static str, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(%error, "{what} failed");
    }
}
