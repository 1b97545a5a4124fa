//! The sessions of one command, which it ends when it is over.

use crate::{ending, transports::Options, waiting::Watch};
use anyhow::Result;
pub(crate) use rpcrdma::client::command::{Bare, Session, version_2, version_3, version_4};
use std::ops::{Deref, DerefMut};

/// The library's sessions, and the watch that tells the user when a server does not answer.
pub(crate) struct Sessions {
    sessions: rpcrdma::client::command::Sessions,
    watch: Watch,
}

impl Sessions {
    pub(crate) fn new(mut options: Options) -> Result<Self> {
        options.open_capture()?;
        let watch = options.watch.clone();
        let sessions = rpcrdma::client::command::Sessions::new(options.into())?;
        ending::later(sessions.ending());
        Ok(Self { sessions, watch })
    }

    /// The watch that tells the user when a server does not answer.
    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }
}

impl Deref for Sessions {
    type Target = rpcrdma::client::command::Sessions;

    fn deref(&self) -> &Self::Target {
        &self.sessions
    }
}

impl DerefMut for Sessions {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.sessions
    }
}
