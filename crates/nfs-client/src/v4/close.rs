//! Closing: CLOSE, by the caller or by the driver.

use super::{
    Error, Inner, Lost, Nfs4, Opened,
    compound::{Plan, put},
    held::Held,
    reply::{Reply, done},
    revoked::is_to_be_freed,
    standing::Ground,
};
use rpcrdma_nfs::v4::{Args, Op, Status, ops};
use std::sync::Arc;

impl Nfs4 {
    /// CLOSE, after all locks of the open are unlocked.
    ///
    /// # Errors
    /// [`Error::Lost`] if the open or its locks were lost; see [`Error`].
    pub async fn close(&self, opened: Opened) -> Result<(), Error> {
        self.close_shared(&opened).await
    }

    /// The same for a file to which other code may still refer: that code finds it closed.
    pub(crate) async fn close_shared(&self, opened: &Opened) -> Result<(), Error> {
        self.inner.close_held(&opened.held).await
    }
}

impl Inner {
    /// Closes a file, and returns an error if anything of it was lost.
    pub(super) async fn close_held(self: &Arc<Self>, held: &Arc<Held>) -> Result<(), Error> {
        if held.is_closed() {
            return Ok(());
        }
        let lost = self.still_held(Op::Close, held);
        let closed = match &lost {
            Err(Error::Lost { what: Lost::Open, .. }) => Ok(()),
            _ => {
                if lost.is_ok() {
                    self.unlock_all(held).await?;
                }
                self.close_open(held).await
            }
        };
        match closed {
            // The transport has failed: the caller may try again.
            Err(error @ Error::Call { .. }) => Err(error),
            closed => {
                held.closed();
                self.opens.remove(held);
                if self.minor > 0 && closed.as_ref().is_err_and(|error| error.status().is_some_and(is_to_be_freed)) {
                    held.stateids().into_iter().for_each(|(state, _)| self.duties.free(state));
                }
                if lost.is_ok() && closed.is_ok() {
                    self.owners.put(held.owner.clone());
                }
                lost.and(closed.map_err(of_lost))
            }
        }
    }

    async fn close_open(&self, held: &Arc<Held>) -> Result<(), Error> {
        let _turn = held.owner.turn.lock().await;
        let mut build = |ground: &Ground| {
            // An open that could not be reclaimed is not closed: in minor version 0 its stateid would report a restart
            // each time.
            if let Some((Lost::Open, _)) = held.lost() {
                self.still_held(Op::Close, held)?;
            }
            let close = ops::Close { sequence: held.owner.begin(), state: held.open_state(ground) };
            Ok(vec![put(&held.file), Args::Close(close)])
        };
        let mut seen = |reply: &Reply| held.owner.seen(reply, Op::Close);
        let plan = Plan::changes(Op::Close);
        let mut reply = self.perform_with(plan, None, None, &mut build, &mut seen).await?;
        match done!(reply, Close) {
            Ok(_) => Ok(()),
            // An earlier call has closed it.
            Err(error) if error.status() == Some(Status::BAD_STATEID) && reply.is_repeated => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Any call may find out that the server has taken an open away: then the open is lost.
fn of_lost(error: Error) -> Error {
    match error.status() {
        Some(status) if is_to_be_freed(status) => Error::Lost { operation: Op::Close, what: Lost::Open, status },
        _ => error,
    }
}
