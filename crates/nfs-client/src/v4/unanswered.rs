//! Calls for whose reply the transport has stopped waiting: their outcome is unknown. When the server answers again,
//! the driver takes back what they may have left there. Otherwise it would stay as long as the client renews the lease;
//! it would exclude others, and prevent the client's own end.

use super::{Access, Error, How, Inner, Nfs4, finish::Caller, held::Held, open::By, open::Place};
use crate::patience::Patience;
use std::sync::Arc;

impl Inner {
    /// Whether the driver tries failed work again, after a while. It does not if the server has answered, whatever the
    /// answer; if the work takes too long; or if the client is ending.
    async fn is_tried_again(&self, error: &Error, patience: &mut Patience) -> bool {
        error.is_unanswered()
            && !self.duties.is_ending()
            && patience.wait(&*self.env.clock).await
            && !self.duties.is_ending()
    }

    /// Closes a file that is no longer used.
    pub(super) async fn close_in_the_end(self: &Arc<Self>, held: &Arc<Held>) -> Result<(), Error> {
        let mut patience = Patience::new();
        loop {
            match self.close_held(held).await {
                Err(error) if self.is_tried_again(&error, &mut patience).await => {}
                closed => return closed,
            }
        }
    }
}

impl Nfs4 {
    /// A call without a reply may have opened a file. The driver opens the file by the same owner, which unites both
    /// opens (RFC 8881 section 9.7), and closes it. This does not create the file: if the file does not exist, nothing
    /// is open.
    pub(super) fn take_back(&self, mut by: By, place: Place, access: Access) {
        let nfs = self.clone();
        self.inner.duties.finish(Box::pin(async move {
            let (mut patience, caller) = (Patience::new(), Caller::default());
            loop {
                match nfs.open_by(&mut by, &place, access, How::Existing, &[], &caller).await {
                    // Dropping it closes it.
                    Ok(opening) => return drop(opening),
                    Err(error) if nfs.inner.is_tried_again(&error, &mut patience).await => {}
                    Err(error) => {
                        return tracing::debug!(%error, "cannot find what a call without a reply may have opened");
                    }
                }
            }
        }));
    }
}
