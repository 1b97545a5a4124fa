//! Delegations with opens, and their return: what an OPEN wishes for and gets, and DELEGRETURN (RFC 8881 sections 10.4,
//! 18.6, 18.16.3).
//!
//! The checks come in this order: whether the server can call the client, the table of claims, the host, and how much
//! the client may hold. If a later step fails, the earlier steps are undone. The OPEN then succeeds without a
//! delegation, and says why if the client wished for one.

use super::{
    compound::Compound,
    delegations::{Delegated, Origin, Told},
    open::Pinned,
    service::{Pin, Shared},
    state::{
        checked::Wanted,
        clients::Client,
        grace::Recorded,
        owners::{BOTH, Share},
    },
};
use crate::{
    HostLease, OpenFile,
    claims::{self, Kind, NotDelegated},
    opened::Opened,
};
use rpcrdma_nfs::v4::{
    Ace, Principal, StateId, Status, ace,
    ops::{
        self, Answer, Delegation, DelegationKind, ReadDelegation, SpaceLimit, WhyNoDelegation, WriteDelegation, share,
    },
};
use std::sync::Arc;

/// What an OPEN wishes for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The client does not say: it takes what it gets, and need not know why it gets nothing.
    Open,
    /// A delegation, best of this kind, or the reason why there is none. The access decides which kind is tried.
    For(Option<Kind>),
    /// Nothing, for this reason.
    Nothing(WhyNoDelegation),
    /// The client had this kind before the server started.
    Again(Kind),
    /// Nothing, and no reason: the client claims by a delegation that it has.
    No,
}

/// Bits that only qualify a wish.
const HINTS: u32 = share::WANT_SIGNAL_WHEN_AVAILABLE
    | share::WANT_PUSH_WHEN_UNCONTENDED
    | share::WANT_TIMESTAMPS
    | share::WANT_OPEN_XOR_DELEGATION;

impl Wish {
    /// Splits the access bits of an OPEN into the access itself and the wish for a delegation.
    ///
    /// # Errors
    /// INVAL for bits without a meaning.
    pub(super) fn of(access: u32, deny: u32, minor: u32) -> Result<(Share, Self), Status> {
        if minor == 0 {
            return Ok((Share::new(access, deny)?, Self::Open));
        }
        let asked = Share::new(access & !(share::WANT_MASK | HINTS), deny)?;
        let wish = match access & share::WANT_MASK {
            0 if access & HINTS == 0 => Self::Open,
            0 | share::WANT_ANY => Self::For(None),
            share::WANT_READ => Self::For(Some(Kind::Read)),
            share::WANT_WRITE => Self::For(Some(Kind::Write)),
            share::WANT_NONE => Self::Nothing(WhyNoDelegation::NotWanted),
            share::WANT_CANCEL => Self::Nothing(WhyNoDelegation::Cancelled),
            _ => return Err(Status::INVAL),
        };
        Ok((asked, wish))
    }

    /// A wish for the delegation that the client had before the server started.
    pub(super) fn again(kind: DelegationKind) -> Self {
        match kind {
            DelegationKind::Read | DelegationKind::ReadAttributes => Self::Again(Kind::Read),
            DelegationKind::Write | DelegationKind::WriteAttributes => Self::Again(Kind::Write),
            DelegationKind::None | DelegationKind::NoneExtended => Self::No,
        }
    }

    /// Which kind to try for such an open. A holder of a write delegation may read, too.
    fn kind(&self, share: Share, minor: u32) -> Option<Kind> {
        let natural = match share.access() {
            1 => Some(Kind::Read),
            // In minor version 0 only for reading: there calls to the client are less reliable.
            BOTH if minor > 0 => Some(Kind::Write),
            _ => None,
        };
        match self {
            Self::Again(Kind::Write) => natural.filter(|kind| *kind == Kind::Write),
            Self::Again(Kind::Read) => natural.map(|_| Kind::Read),
            Self::Open | Self::For(_) => natural,
            Self::Nothing(_) | Self::No => None,
        }
    }

    /// What the reply to an OPEN without a delegation says.
    fn nothing(self, why: WhyNoDelegation) -> Delegation {
        match self {
            Self::Nothing(why) => Delegation::NoneExtended(why),
            Self::For(_) => Delegation::NoneExtended(why),
            Self::Open | Self::Again(_) | Self::No => Delegation::None,
        }
    }
}

/// Why the table refuses a delegation to a client.
fn why_not(refused: NotDelegated, wanted: Kind) -> WhyNoDelegation {
    match (refused, wanted) {
        (NotDelegated::Contention, _) => WhyNoDelegation::Contention(false),
        (NotDelegated::Has(Kind::Read), Kind::Write) => WhyNoDelegation::NotSupportedUpgrade,
        (NotDelegated::Has(Kind::Write), Kind::Read) => WhyNoDelegation::NotSupportedDowngrade,
        (NotDelegated::Has(_) | NotDelegated::Nobody, _) => WhyNoDelegation::Resource(false),
    }
}

/// Names nobody: so the client asks by ACCESS before it opens the file for a user, and the rights of that time count.
fn nobody() -> Ace {
    Ace { kind: ace::ALLOWED, flags: 0, rights: 0, who: Principal::from("") }
}

/// A successful OPEN.
pub(super) struct Done<'a> {
    pub(super) file: &'a Opened,
    pub(super) share: Share,
    pub(super) open: Arc<dyn OpenFile>,
    pub(super) recorded: Recorded,
}

impl Compound {
    /// The delegation that an OPEN gets.
    pub(super) async fn delegation(&self, wish: Wish, done: Done<'_>) -> Delegation {
        match self.try_delegate(&wish, done).await {
            Ok(delegation) => delegation,
            Err(why) => wish.nothing(why),
        }
    }

    // NFS4-8881-10.4-e, NFS4-8881-18.16-a, NFS4-8881-18.16-i
    async fn try_delegate(&self, wish: &Wish, done: Done<'_>) -> Result<Delegation, WhyNoDelegation> {
        let nothing = WhyNoDelegation::Resource(false);
        let kind = wish.kind(done.share, self.minor).ok_or(nothing.clone())?;
        let client = self.client().map_err(|_| nothing.clone())?;
        let is_again = matches!(wish, Wish::Again(_));
        // NFS4-8881-10.4-b: while clients may reclaim, they get back the delegations that they had, and no others.
        if !self.shared.delegates || !is_again && self.shared.state.recovery.is_grace() {
            return Err(nothing);
        }
        // RFC 7530 section 16.18.5: if the client has not confirmed its open, it may not have asked for it.
        if !self.may_delegate {
            return Err(nothing);
        }
        let is_unreliable = self.shared.delegations.is_unreliable(client.id(), self.shared.now());
        if !is_again && (is_unreliable || !self.shared.can_call(&client)) {
            return Err(nothing);
        }
        let Done { file, open, recorded, .. } = done;
        let key = Self::key(file);
        let holder = claims::Client::V4(client.id().0);
        let guard = self.shared.claims.delegate(key, holder, kind, is_again).map_err(|why| why_not(why, kind))?;
        let lease = self.host_lease(file, &open, kind).await.map_err(|_| nothing.clone())?;
        // The change number that the client learns with the delegation, or the number of a later change by this client
        // itself.
        let change = match kind {
            Kind::Read => 0,
            Kind::Write => file.attributes().await.map_err(|_| nothing.clone())?.change,
        };
        let handle = self.handle(file).map_err(|_| nothing.clone())?;
        let pin: Pin = Arc::new(Pinned::new(open, file.clone()));
        let share = Share::new(if kind == Kind::Read { 1 } else { BOTH.into() }, 0).map_err(|_| nothing.clone())?;
        let id = client.held.delegate(&recorded, key, share, pin).map_err(|_| nothing.clone())?;
        let told = Told { granted: change, is_modified: false, change };
        let delegated = Delegated {
            id,
            kind,
            client: client.clone(),
            handle,
            origin: self.origin_of_delegation(),
            guard,
            _lease: lease,
            told,
        };
        self.shared.delegations.add((client.id(), key), delegated);
        self.settle(&client, file, id, is_again).map_err(|_| nothing)?;
        Ok(granted(kind, id, is_again))
    }

    /// Handles what may have happened to a delegation before others could see it.
    fn settle(&self, client: &Arc<Client<Pin>>, file: &Opened, id: StateId, is_again: bool) -> Result<(), Status> {
        let key = (client.id(), Self::key(file));
        let shared = &self.shared;
        // Its client may have ended when there was nothing yet to give back.
        if let Err(status) = client.held.check(id, key.1, Wanted::Delegation) {
            shared.delegations.end(key, id);
            return Err(status);
        }
        if is_again {
            // The reply says so: the client must return it, whether or not another client wants the file.
            // NFS4-8881-10.2.1-a
            shared.delegations.recall(key, shared.now(), false);
        } else if shared.delegations.is_wanted(key) {
            shared.recall_delegation(key);
        }
        Ok(())
    }

    async fn host_lease(&self, file: &Opened, open: &Arc<dyn OpenFile>, kind: Kind) -> Result<HostLease, Status> {
        let (file_system, open, key) = (file.file_system.clone(), open.clone(), Self::key(file));
        let shared = Arc::downgrade(&self.shared);
        let broken = Box::new(move || {
            if let Some(shared) = shared.upgrade() {
                // As if another client were about to change the file: every holder is asked to return it.
                drop(shared.claims.recall(key, None, Kind::Write));
            }
        });
        let leased = self
            .shared
            .on_worker(self.origin(), move |_| file_system.host_lease(&open, kind, broken).map_err(|_| Status::DELAY));
        leased.await
    }

    fn origin_of_delegation(&self) -> Option<Origin> {
        let (session, slot, sequence) = self.call()?;
        Some(Origin { session: Arc::downgrade(session), slot, sequence })
    }

    /// Checks that a client has a delegation that permits such an open.
    ///
    /// # Errors
    /// As for every stateid; OPENMODE if it is for reading alone.
    pub(super) fn check_claim(&self, delegation: StateId, file: &Opened, share: Share) -> Result<(), Status> {
        let id = self.state_of(delegation, false)?;
        let checked = self.client()?.held.check(id, Self::key(file), Wanted::Delegation)?;
        // NFS4-8881-18.16-h
        if share.access() & !checked.share.access() != 0 { Err(Status::OPENMODE) } else { Ok(()) }
    }

    /// DELEGRETURN.
    pub(super) fn return_delegation(&mut self, args: ops::DelegReturn) -> Answer {
        let file = self.file()?;
        let id = self.state_of(args.state, false)?;
        let client = self.client_of(id)?;
        let released = client.held.undelegate(id, Self::key(&file))?;
        self.shared.release(self.origin(), released);
        Ok(())
    }
}

fn granted(kind: Kind, state: StateId, recalled: bool) -> Delegation {
    match kind {
        Kind::Read => Delegation::Read(ReadDelegation { state, recalled, permissions: nobody() }),
        Kind::Write => Delegation::Write(Box::new(WriteDelegation {
            state,
            recalled,
            // As with Linux's server: when the client writes its data back, it learns that there is no room.
            limit: SpaceLimit::Size(u64::MAX),
            permissions: nobody(),
        })),
    }
}

impl Shared {
    /// Removes a delegation that has ended from the tables.
    pub(super) fn undelegated(&self, client: rpcrdma_nfs::v4::ClientId, file: claims::FileKey, id: StateId) {
        self.delegations.end((client, file), id);
    }
}
