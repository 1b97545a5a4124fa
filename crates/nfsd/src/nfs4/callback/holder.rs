//! Asking the holder of a delegation for writing what it knows of the file: CB_GETATTR (RFC 8881 sections 10.4.3,
//! 20.1).
//!
//! However many callers want to know, the server asks the holder by one call at a time. A caller waits for
//! [`RECALL_WAIT`] at most; if the holder has not answered by then, its delegation is recalled.
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

/// What only the holder knows.
const OF_HOLDER: Bitmap = Bitmap::of(&[Attribute::Change, Attribute::Size]);

/// What depends on it.
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
    // No file of any client's is larger.
    i64::try_from(size).ok()?;
    Some(Said { size, change })
}

impl Shared {
    /// What the holder of a delegation says, if it says so in time.
    async fn asked_of(self: &Arc<Self>, key: Key) -> Option<Said> {
        let mut answer = match self.delegations.ask(key)? {
            Asking::Wait(answer) => answer,
            Asking::Begin(client, file, sender, answer) => {
                let shared = self.clone();
                self.tasks.spawn(async move {
                    let args = Args::GetAttr(CbGetAttr { file, asked: OF_HOLDER });
                    let outcomes = shared.call_back(&client, vec![args], Vec::new()).await;
                    shared.delegations.has_asked(client.id());
                    // Who asked may have given up.
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
    /// What a file is, with what the client says that has it delegated for writing, if that is another one and `asked`
    /// depends on it.
    ///
    /// # Errors
    /// DELAY if the holder does not say.
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
            // It was returned while this call waited: what the file is now, it is.
            return file.attributes().await.map_err(status);
        };
        let is_modified = self.shared.delegations.tell(delegation, |told| {
            // NFS4-8881-10.4.3-a: once it has changed the file, it may have changed it again whenever it is asked.
            told.is_modified |= said.change != told.granted || said.size != attributes.size;
            told.is_modified
        });
        match is_modified {
            Some(true) => {}
            Some(false) => return Ok(attributes),
            // It was returned meanwhile.
            None => return file.attributes().await.map_err(status),
        }
        // The times of the file itself, so that nothing goes back if the holder never writes what it has.
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

    /// Who this client is to the table of claims.
    pub(in crate::nfs4) fn user(&self) -> Option<claims::Client> {
        self.client().ok().map(|client| claims::Client::V4(client.id().0))
    }
}
