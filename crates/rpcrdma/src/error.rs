//! The error of this crate's functions.
//!
//! An [`Error`] is a sentence for a person. Often there is another error behind it that says why: [`source`] returns
//! it, and [`Error::find`] finds an error of the crates below in the chain.
//!
//! [`source`]: std::error::Error::source

use std::{error::Error as StdError, fmt};

type Boxed = Box<dyn StdError + Send + Sync>;

/// What went wrong, and why.
///
/// ```
/// # fn told(error: &rpcrdma::Error) {
/// // On one line, with its causes:
/// eprintln!("{error:#}");
/// if let Some(error) = error.find::<rpcrdma::nfs_client::Error>() {
///     eprintln!("the server's status: {:?}", error.status());
/// }
/// # }
/// ```
pub struct Error(Box<Repr>);

#[derive(Debug, thiserror::Error)]
enum Repr {
    /// What was asked for contradicts itself.
    #[error("{0}")]
    Misuse(String),
    #[error("{0}")]
    Message(String),
    #[error("{0}")]
    Context(String, #[source] Error),
    #[error(transparent)]
    Other(Boxed),
}

impl Error {
    /// An error that is a sentence and nothing else.
    pub(crate) fn message(text: impl Into<String>) -> Self {
        Self(Box::new(Repr::Message(text.into())))
    }

    /// An error of the program that calls: it has asked for something impossible.
    pub(crate) fn misuse(text: impl Into<String>) -> Self {
        Self(Box::new(Repr::Misuse(text.into())))
    }

    /// The same error, with a text before it that says what was being done.
    pub(crate) fn context(self, text: impl Into<String>) -> Self {
        Self(Box::new(Repr::Context(text.into(), self)))
    }

    /// Whether the program has asked for something impossible, such as options that contradict each other: asking again
    /// does not help.
    pub fn is_misuse(&self) -> bool {
        match &*self.0 {
            Repr::Misuse(_) => true,
            Repr::Context(_, inner) => inner.is_misuse(),
            Repr::Message(_) | Repr::Other(_) => false,
        }
    }

    /// Whether a server says that a file or a name does not exist.
    pub fn is_absent(&self) -> bool {
        self.find::<rpcrdma_nfs_client::Error>().is_some_and(rpcrdma_nfs_client::Error::is_absent)
    }

    /// The first error of a type in the chain, from the outermost on: [`std::io::Error`], or an error of a crate below.
    pub fn find<T: StdError + 'static>(&self) -> Option<&T> {
        match &*self.0 {
            Repr::Context(_, inner) => inner.find(),
            Repr::Other(error) => {
                let mut next: Option<&(dyn StdError + 'static)> = Some(&**error);
                while let Some(error) = next {
                    if let Some(found) = error.downcast_ref() {
                        return Some(found);
                    }
                    next = error.source();
                }
                None
            }
            Repr::Misuse(_) | Repr::Message(_) => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)?;
        let mut next = StdError::source(self).filter(|_| f.alternate());
        while let Some(error) = next {
            write!(f, ": {error}")?;
            next = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A `main` that returns an error prints this.
        write!(f, "{self:#}")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

/// Errors of other crates become this one where `?` meets them.
macro_rules! from {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self(Box::new(Repr::Other(Box::new(error))))
            }
        })*
    };
}

from!(
    std::io::Error,
    rustix::io::Errno,
    std::net::AddrParseError,
    rpcrdma_fabric::ConnectError,
    rpcrdma_fabric::ListenError,
    rpcrdma_gss::Error,
    rpcrdma_gss::LoadError,
    rpcrdma_gss::MapError,
    rpcrdma_nfs_client::Error,
    rpcrdma_nfs_client::MountError,
    rpcrdma_nfs_client::v4::Error,
    rpcrdma_nfsd::ConfigError,
    rpcrdma_nfsd::MonitorError,
    rpcrdma_nfsd::OpenError,
    rpcrdma_nfsd::StateError,
    rpcrdma_nfsd::Version2Error,
    rpcrdma_nfsd::Version4Error,
    rpcrdma_oncrpc::CallError,
    rpcrdma_oncrpc::TransportError,
    rpcrdma_verbs::OpenError,
    tokio::sync::oneshot::error::RecvError,
);

/// Adds to an error what was being done when it happened.
pub(crate) trait Context<T> {
    /// Puts a sentence before the error.
    fn context(self, text: impl Into<String>) -> Result<T, Error>;

    /// The same with a sentence that is made only if it is needed.
    fn with_context<S: Into<String>>(self, text: impl FnOnce() -> S) -> Result<T, Error>;
}

impl<T, E: Into<Error>> Context<T> for Result<T, E> {
    fn context(self, text: impl Into<String>) -> Result<T, Error> {
        self.map_err(|error| error.into().context(text))
    }

    fn with_context<S: Into<String>>(self, text: impl FnOnce() -> S) -> Result<T, Error> {
        self.map_err(|error| error.into().context(text()))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, text: impl Into<String>) -> Result<T, Error> {
        self.ok_or_else(|| Error::message(text))
    }

    fn with_context<S: Into<String>>(self, text: impl FnOnce() -> S) -> Result<T, Error> {
        self.ok_or_else(|| Error::message(text()))
    }
}

/// Returns an error that is a sentence.
macro_rules! bail {
    ($($text:tt)*) => { return Err($crate::Error::message(format!($($text)*))) };
}

/// The same unless something holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)*) => { if !$holds { $crate::error::bail!($($text)*) } };
}

pub(crate) use {bail, ensure};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_its_causes_and_gives_them_out() {
        let lost = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let text = lost.to_string();
        let error = Err::<(), _>(lost).context("inner").with_context(|| "outer").unwrap_err();
        assert_eq!(error.to_string(), "outer");
        assert_eq!(format!("{error:#}"), format!("outer: inner: {text}"));
        assert!(error.find::<std::io::Error>().is_some() && !error.is_misuse());
        let plain = Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert_eq!(format!("{plain:#}"), text, "once");
        assert!(Error::misuse("no").context("why").is_misuse());
    }
}
