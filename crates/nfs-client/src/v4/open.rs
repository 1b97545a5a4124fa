//! Opening: OPEN, OPEN_CONFIRM.

use super::{
    Error, Inner, Nfs4, attributes,
    compound::{Plan, get_attributes, put},
    finish::{Caller, Finishing},
    held::Held,
    names::is_doubtful,
    owner::OpenOwner,
    reply::{Reply, done},
    standing::Ground,
};
use rpcrdma_nfs::{
    attr::{Attributes, FileType, NewAttributes},
    v4::{
        Args, FileAttributes, Handle, Name, Op, Owner, StateId, Status, VERIFIER_BYTES, Verifier,
        ops::{self, Claim, CreateExclusive, CreateHow, Delegation, OpenHow, OpenOk, open_result, share},
    },
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read it.
    Read,
    /// To write it.
    Write,
    /// Both.
    Both,
}

impl Access {
    fn bits(self) -> u32 {
        match self {
            Self::Read => share::READ,
            Self::Write => share::WRITE,
            Self::Both => share::BOTH,
        }
    }
}

/// Whether the file of an open must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It must exist.
    Existing,
    /// Make it if it does not exist. An existing file gets only a size of 0 from these attributes.
    Unchecked(NewAttributes),
    /// It must not exist.
    Guarded(NewAttributes),
    /// It must not exist, unless this very call has made it.
    Exclusive(NewAttributes),
    /// The same; all calls with this verifier count as one.
    ExclusiveBy(NewAttributes, Verifier),
}

/// An open file. Dropping it closes it a little later; [`Nfs4::close`] does so at once and returns the result.
pub struct Opened {
    pub(super) inner: Arc<Inner>,
    pub(super) held: Arc<Held>,
}

impl Opened {
    /// The file.
    pub fn file(&self) -> &Handle {
        &self.held.file
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.held.fmt(f)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.held.is_closed() {
            self.inner.duties.close(self.held.clone());
        }
    }
}

/// The file to open.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    Name(&'a Handle, &'a Name),
    File(&'a Handle),
}

/// The same, for a call that may outlive its caller.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Name(Handle, Name),
    File(Handle),
}

impl From<Target<'_>> for Place {
    fn from(target: Target<'_>) -> Self {
        match target {
            Target::Name(directory, name) => Self::Name(directory.clone(), name.clone()),
            Target::File(file) => Self::File(file.clone()),
        }
    }
}

/// The owner that opens, and whether the call may have been sent.
#[derive(Debug)]
pub(super) struct By {
    owner: Arc<OpenOwner>,
    is_tried: bool,
}

/// An open, and the reply that brought it.
pub(super) struct Opening {
    pub(super) opened: Opened,
    pub(super) attributes: Result<Attributes, Error>,
    pub(super) reply: Reply,
}

impl Nfs4 {
    /// OPEN: opens the file of a name, and makes it if `how` says so.
    ///
    /// # Errors
    /// See [`Error`], here and below.
    pub async fn open(
        &self,
        directory: &Handle,
        name: &Name,
        access: Access,
        how: How,
    ) -> Result<(Opened, Attributes), Error> {
        self.open_target(Target::Name(directory, name), access, how).await
    }

    /// OPEN: opens a file by its handle. Not in minor version 0.
    pub async fn open_file(&self, file: &Handle, access: Access) -> Result<(Opened, Attributes), Error> {
        if self.inner.minor == 0 {
            return Err(Error::NotInMinor { operation: Op::Open, minor: 0 });
        }
        self.open_target(Target::File(file), access, How::Existing).await
    }

    async fn open_target(&self, target: Target<'_>, access: Access, how: How) -> Result<(Opened, Attributes), Error> {
        let opening = self.opening(target, access, how, Vec::new()).await?;
        let attributes = match opening.attributes {
            Ok(attributes) => attributes,
            Err(_) => self.getattr(opening.opened.file()).await.map_err(|error| of_made(how, error))?,
        };
        Ok((opening.opened, attributes))
    }

    /// Opens a file, with further operations in the same call, and handles all that comes with an open. If this is
    /// dropped while the call is under way, the driver closes the file as soon as it is open.
    pub(super) fn opening(
        &self,
        target: Target<'_>,
        access: Access,
        how: How,
        more: Vec<Args>,
    ) -> Finishing<Result<Opening, Error>> {
        let (nfs, target) = (self.clone(), Place::from(target));
        Finishing::new(&self.inner.duties, |caller| async move {
            let opening = nfs.open_now(&target, access, how, &more, &caller).await?;
            if caller.has_left() && opening.reply.has_done(Op::Close) {
                opening.opened.held.closed();
                nfs.inner.opens.remove(&opening.opened.held);
                nfs.inner.owners.put(opening.opened.held.owner.clone());
            }
            Ok(opening)
        })
    }

    async fn open_now(
        &self,
        target: &Place,
        access: Access,
        how: How,
        more: &[Args],
        caller: &Caller,
    ) -> Result<Opening, Error> {
        let mut by = By { owner: self.inner.owners.take(), is_tried: false };
        let opening = self.open_by(&mut by, target, access, how, more, caller).await;
        if by.is_tried && opening.as_ref().is_err_and(|error| error.is_unanswered() && error.is_of_open()) {
            self.take_back(by, target.clone(), access);
        }
        opening
    }

    pub(super) async fn open_by(
        &self,
        by: &mut By,
        target: &Place,
        access: Access,
        how: How,
        more: &[Args],
        caller: &Caller,
    ) -> Result<Opening, Error> {
        let inner = &self.inner;
        let asked = how;
        let (how, wanted) = inner.open_how(how);
        let By { owner, is_tried } = by;
        let owner = owner.clone();
        let turn = owner.turn.lock().await;
        let mut epoch = 0;
        let mut build = |ground: &Ground| {
            if caller.has_left() && !*is_tried {
                return Err(Error::Unsettled { operation: Op::Open, times: 0 });
            }
            (epoch, *is_tried) = (ground.epoch, true);
            Ok(inner.open_ops(ground, target, access, &how, &owner, more))
        };
        // An open of an existing file may be executed twice, and the data in the same reply is too large to be kept.
        let plan = Plan { is_kept: !matches!(how, OpenHow::NoCreate), ..Plan::changes(Op::Open) };
        // Until the results are known.
        let _opens = (inner.minor == 0).then(|| inner.awaited.opens());
        let reply = inner.perform_with(plan, None, None, &mut build, &mut |reply| owner.seen(reply, Op::Open)).await;
        drop(turn);
        let mut reply = reply?;
        let opened = match done!(reply, Open) {
            Ok(opened) => opened,
            Err(error) => {
                inner.owners.put(owner);
                if self.has_made(&reply, target, asked).await? {
                    return Box::pin(self.open_now(target, access, How::Existing, more, caller)).await;
                }
                // What came after the open in an earlier attempt has changed the file. So the server no longer finds
                // the verifier in it, and cannot tell that this call made it.
                let has_changed = matches!(asked, How::Exclusive(_)) && !more.is_empty();
                return Err(match has_changed && is_doubtful(&reply, Op::Open, Status::EXIST) {
                    true => error.after_creation(),
                    false => error,
                });
            }
        };
        let file = match done!(reply, GetFh) {
            Ok(ok) => ok.file,
            Err(error) => match target {
                Place::File(file) => file.clone(),
                Place::Name(..) => return Err(of_made(asked, error)),
            },
        };
        let attributes = attributes::next(&mut reply);
        if opened.flags & open_result::NO_OPEN_STATEID != 0 {
            return Err(Error::nonsense(Op::Open, "gave a delegation in place of an open, without being asked"));
        }
        if opened.state.is_special() {
            return Err(Error::nonsense(Op::Open, "named the open by a stateid that stands for no open"));
        }
        let held = inner.opens.add(file, access.bits(), owner, opened.state, epoch);
        // Whatever happens from here on, the file is closed in the end.
        let guard = Opened { inner: inner.clone(), held };
        inner.after_open(&guard.held, &opened).await.map_err(|error| of_made(asked, error))?;
        let rest = wanted.set.without(&opened.set);
        // Attributes that a SETATTR in the same call sets count: it comes after the open.
        let is_settled = reply.has_done(Op::SetAttr) || matches!(how, OpenHow::Create(CreateHow::Unchecked(_)));
        if !rest.is_empty() && !is_settled {
            self.set_rest(&guard, &wanted).await.map_err(|error| of_made(asked, error))?;
        }
        Ok(Opening { opened: guard, attributes, reply })
    }

    /// Whether the existing file was made by an earlier attempt of the same call, whose reply was lost with the
    /// session. A new file is empty and has one name. So if another client has created the file and filled it, the
    /// client does not take it for its own.
    async fn has_made(&self, reply: &Reply, target: &Place, how: How) -> Result<bool, Error> {
        let (How::Guarded(_), Place::Name(directory, name)) = (how, target) else { return Ok(false) };
        if !is_doubtful(reply, Op::Open, Status::EXIST) {
            return Ok(false);
        }
        let Some(found) = self.exists(directory, name).await? else { return Ok(false) };
        let attributes = &found.attributes;
        let is_made = attributes.file_type == FileType::Regular && attributes.size == 0 && attributes.links == 1;
        if is_made {
            tracing::debug!("a call had been executed before its reply was lost");
        }
        Ok(is_made)
    }

    /// Sets the attributes that an exclusive create could not set.
    async fn set_rest(&self, opened: &Opened, wanted: &FileAttributes) -> Result<(), Error> {
        let held = &opened.held;
        let mut build = |ground: &Ground| {
            self.inner.still_held(Op::SetAttr, held)?;
            let set = ops::SetAttr { state: held.open_state(ground), attributes: wanted.clone() };
            Ok(vec![put(&held.file), Args::SetAttr(set)])
        };
        let mut reply = self.inner.perform(Plan::changes(Op::SetAttr), Some(held), &mut build).await?;
        done!(reply, SetAttr).map(drop)
    }
}

/// An error that came after an open: if the open made the file, the file exists.
fn of_made(how: How, error: Error) -> Error {
    if how == How::Existing { error } else { error.after_creation() }
}

impl Nfs4 {
    /// How many delegations of the server the client has not returned ([`Options`](super::Options)).
    pub fn delegations(&self) -> usize {
        self.inner.awaited.delegations().len()
    }
}

impl Inner {
    /// The protocol's form of it, and the attributes of a new file.
    fn open_how(&self, how: How) -> (OpenHow, FileAttributes) {
        let (new, make): (_, fn(FileAttributes) -> CreateHow) = match how {
            How::Existing => return (OpenHow::NoCreate, FileAttributes::default()),
            How::Unchecked(new) => (new, CreateHow::Unchecked),
            How::Guarded(new) => (new, CreateHow::Guarded),
            How::Exclusive(new) => {
                let mut verifier = [0; VERIFIER_BYTES];
                self.env.random.fill(&mut verifier);
                return self.exclusive(&new, Verifier(verifier));
            }
            How::ExclusiveBy(new, verifier) => return self.exclusive(&new, verifier),
        };
        let attributes = self.fresh(&new);
        (OpenHow::Create(make(attributes.clone())), attributes)
    }

    fn exclusive(&self, new: &NewAttributes, verifier: Verifier) -> (OpenHow, FileAttributes) {
        let attributes = self.fresh(new);
        let how = match self.minor {
            0 => CreateHow::Exclusive(verifier),
            _ => CreateHow::Exclusive41(CreateExclusive { verifier, attributes: attributes.clone() }),
        };
        (OpenHow::Create(how), attributes)
    }

    fn open_ops(
        &self,
        ground: &Ground,
        target: &Place,
        access: Access,
        how: &OpenHow,
        owner: &OpenOwner,
        more: &[Args],
    ) -> Vec<Args> {
        let (place, claim) = match target {
            Place::Name(directory, name) => (directory, Claim::Null(name.clone())),
            Place::File(file) => (file, Claim::Handle),
        };
        let open = ops::Open {
            sequence: owner.begin(),
            access: access.bits() | self.wants(),
            deny: 0,
            owner: Owner { client: ground.client, name: owner.name.clone() },
            how: how.clone(),
            claim,
        };
        let mut ops = vec![put(place), Args::Open(Box::new(open)), Args::GetFh, get_attributes()];
        ops.extend_from_slice(more);
        ops
    }

    /// Confirms an open, and returns a delegation that came with it.
    async fn after_open(&self, held: &Arc<Held>, opened: &OpenOk) -> Result<(), Error> {
        if let Some(Given { state, is_recalled }) = delegated(&opened.delegation) {
            self.awaited.delegated(&held.file, state);
            let is_kept = self.options.keeps_delegations && !is_recalled;
            if !is_kept || self.awaited.has_too_many_delegations() {
                self.return_delegation(&held.file, state).await;
            }
        }
        if opened.flags & open_result::CONFIRM == 0 || self.minor > 0 {
            return Ok(());
        }
        held.owe_confirmation();
        let _turn = held.owner.turn.lock().await;
        let is_asked = AtomicBool::new(false);
        let mut build = |ground: &Ground| {
            self.still_held(Op::OpenConfirm, held)?;
            is_asked.store(held.owes_confirmation(), Ordering::Relaxed);
            if !held.owes_confirmation() {
                return Ok(vec![put(&held.file)]);
            }
            let confirm = ops::OpenConfirm { state: held.open_state(ground), sequence: held.owner.begin() };
            Ok(vec![put(&held.file), Args::OpenConfirm(confirm)])
        };
        let mut seen = |reply: &Reply| is_asked.load(Ordering::Relaxed) && held.owner.seen(reply, Op::OpenConfirm);
        let plan = Plan::changes(Op::OpenConfirm);
        let mut reply = self.perform_with(plan, Some(held), None, &mut build, &mut seen).await?;
        if is_asked.into_inner() {
            held.confirmed(done!(reply, OpenConfirm)?.state);
        }
        Ok(())
    }

    /// A delegation that came with a reclaimed open: Linux's nfsd grants one even if the client had none. The driver
    /// returns it.
    pub(super) fn not_wanted(&self, held: &Held, delegation: &Delegation) {
        if let Some(Given { state, .. }) = delegated(delegation) {
            self.awaited.delegated(&held.file, state);
            self.awaited.recalled(state);
            if !self.duties.give_back(held.file.clone(), state) {
                self.awaited.returned(state);
            }
        }
    }

    /// The wish for delegations in OPEN: usually that the client wants none, which minor version 0 cannot express.
    pub(super) fn wants(&self) -> u32 {
        if self.minor > 0 && !self.options.keeps_delegations { share::WANT_NONE } else { 0 }
    }
}

/// A delegation that came with an open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) state: StateId,
    /// The server already recalls it, and will not call for it again.
    pub(super) is_recalled: bool,
}

/// The delegation in OPEN's results, if there is one.
pub(super) fn delegated(delegation: &Delegation) -> Option<Given> {
    match delegation {
        Delegation::None | Delegation::NoneExtended(_) => None,
        Delegation::Read(given) | Delegation::ReadAttributes(given) => {
            Some(Given { state: given.state, is_recalled: given.recalled })
        }
        Delegation::Write(given) | Delegation::WriteAttributes(given) => {
            Some(Given { state: given.state, is_recalled: given.recalled })
        }
    }
}
