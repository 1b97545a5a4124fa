//! Asks the holder of a write delegation for the file's size and change number: CB_GETATTR (RFC 8881 sections 10.4.3,
//! 20.1).
//!
//! However many callers want to know, the server makes one call at a time to the holder. A caller waits for
//! [`RECALL_WAIT`] at most; if the holder has not answered by then, the server recalls its delegation.
//!
//! [`RECALL_WAIT`]: crate::nfs4::state::limits::RECALL_WAIT

use crate::{
    Caller, Via,
    claims::{self, Kind},
    nfs4::{
        compound::Compound,
        delegations::{Asking, Key, Said, Saying},
        service::Shared,
        tell::status,
    },
    opened::Opened,
};
use futures_util::future::{Either, select};
use rpcrdma_nfs::{
    attr::{Attributes, NewAttributes, SetTime},
    v4::{
        Attribute, Bitmap, Status, Value,
        callback::{Args, CbGetAttr, CbGetAttrOk, Outcome},
    },
};
use std::{pin::pin, sync::Arc};
use tokio::sync::watch;

/// Attributes that only the holder knows.
const OF_HOLDER: Bitmap = Bitmap::of(&[Attribute::Change, Attribute::Size]);

/// Attributes that depend on those.
const BY_HOLDER: Bitmap = Bitmap::of(&[
    Attribute::Change,
    Attribute::Size,
    Attribute::SpaceUsed,
    Attribute::TimeMetadata,
    Attribute::TimeModify,
]);

/// The holder's answer, if it is complete.
fn said(outcomes: &[Outcome]) -> Saying {
    let Some(Outcome::GetAttr(Ok(CbGetAttrOk { attributes }))) = outcomes.first() else { return None };
    let values = attributes.values().ok()?;
    let size = values.iter().find_map(|value| if let Value::Size(size) = value { Some(*size) } else { None })?;
    let change =
        values.iter().find_map(|value| if let Value::Change(change) = value { Some(*change) } else { None })?;
    // No file of a client is larger.
    i64::try_from(size).ok()?;
    Some(Said { size, change })
}

impl Shared {
    /// The answer of the holder of a delegation, if it comes in time.
    async fn asked_of(self: &Arc<Self>, key: Key) -> Option<Said> {
        let mut answer = match self.delegations.ask(key)? {
            Asking::Wait(answer) => answer,
            Asking::Begin(client, file, sender, answer) => {
                let shared = self.clone();
                self.tasks.spawn(async move {
                    let args = Args::GetAttr(CbGetAttr { file, asked: OF_HOLDER });
                    let outcomes = shared.call_back(&client, vec![args], Vec::new()).await;
                    shared.delegations.has_asked(client.id());
                    // All that asked may have given up.
                    let _ = sender.send(Some(outcomes.ok().as_deref().and_then(said)));
                });
                answer
            }
        };
        let wait = self.limits().recall_wait;
        let known = pin!(answered(&mut answer));
        match select(known, self.clock.sleep_until(self.now() + wait)).await {
            Either::Left((said, _)) => said,
            Either::Right(_) => None,
        }
    }
}

async fn answered(answer: &mut watch::Receiver<Option<Saying>>) -> Saying {
    answer.wait_for(Option::is_some).await.ok().and_then(|said| *said).flatten()
}

impl Compound {
    /// A file's attributes, with what the holder of its write delegation reports: if the holder is another client, and
    /// `asked` depends on that.
    ///
    /// # Errors
    /// DELAY if the holder does not answer.
    // NFS4-8881-10.4.3-c
    pub(in crate::nfs4) async fn as_its_holder_says(
        &self,
        file: &Opened,
        asked: Bitmap,
        attributes: Attributes,
    ) -> Result<Attributes, Status> {
        let (key, user) = (Self::key(file), self.user());
        let Some(holder) = self.shared.claims.writer(key, user) else { return Ok(attributes) };
        if asked.and(&BY_HOLDER).is_empty() {
            return Ok(attributes);
        }
        let Some(delegation) = Shared::delegation_of(holder, key) else { return Ok(attributes) };
        let Some(said) = self.shared.asked_of(delegation).await else {
            let _using = self
                .shared
                .using(key, user, Kind::Read)
                .await
                .map_err(|in_the_way| in_the_way.status(Status::DELAY))?;
            // The holder has returned the delegation while this call waited: the file's own attributes are right.
            return file.attributes().await.map_err(status);
        };
        let is_modified = self.shared.delegations.tell(delegation, |told| {
            // NFS4-8881-10.4.3-a: once the holder has changed the file, any later answer may hide another change.
            told.is_modified |= said.change != told.granted || said.size != attributes.size;
            told.is_modified
        });
        match is_modified {
            Some(true) => {}
            Some(false) => return Ok(attributes),
            // The holder has returned the delegation meanwhile.
            None => return file.attributes().await.map_err(status),
        }
        // The file's own times are set, so that they do not go back if the holder never writes its data.
        let touched = NewAttributes { modified: SetTime::Server, ..NewAttributes::default() };
        let via = Via::caller(Caller::root().from_origin(self.origin()), file.file);
        let _ = file.file_system.set_attributes(via, touched, None).await;
        let mut now = file.attributes().await.map_err(status)?;
        let change = self.shared.delegations.tell(delegation, |told| {
            told.change = now.change.max(told.change.saturating_add(1));
            told.change
        });
        // NFS4-8881-10.4.3-b
        (now.size, now.change) = (said.size, change.unwrap_or(now.change));
        Ok(now)
    }

    /// This client's name in the table of claims.
    pub(in crate::nfs4) fn user(&self) -> Option<claims::Client> {
        self.client().ok().map(|client| claims::Client::V4(client.id().0))
    }
}
