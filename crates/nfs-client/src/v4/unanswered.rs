//! Calls that the transport gave up waiting for, whose outcome is unknown. The driver takes back what they may have
//! left with the server as soon as the server answers again. Otherwise it would stay as long as the lease is renewed,
//! and would exclude others and prevent the client's own end.

use super::{Access, Error, How, Inner, Nfs4, finish::Caller, held::Held, open::By, open::Place};
use crate::patience::Patience;
use std::sync::Arc;

impl Inner {
    /// Whether something that the driver does and that failed is to be done once more, after a while. It is not when
    /// the server has answered, whatever it says, when that takes too long, and when the client says goodbye.
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
    /// A call without a reply may have opened a file. The driver opens it by the same owner, which makes one open of
    /// both (RFC 8881 section 9.7), and closes that. It does not create the file for this: if the file does not exist,
    /// nothing is open.
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
                        return tracing::debug!(%error, "what a call without a reply may have opened is not looked for");
                    }
                }
            }
        }));
    }
}
