//! The beginning of a COMPOUND, as far as it waits for nothing: most calls end here, without a future.
//!
//! Operations are admitted and concluded as all others are (`compound.rs`). What may wait, and each READ that fails, is
//! left to the futures: nothing that is given up here has an effect that its second execution would notice.

use super::{
    about::About,
    compound::{Compound, Progress},
    data::{READ_RESULTS_BYTES, UNASKED_READ_BYTES},
    owned::OF_FILE,
    state::stateids::special,
    told::OF_USAGE,
};
use crate::{Via, claims::Access};
use futures_util::FutureExt as _;
use rpcrdma_nfs::v4::{
    Args, Attribute, Outcome, Status,
    ops::{self, Answer},
};
use std::ops::ControlFlow;

impl Compound {
    /// Executes operations until one may have to wait. Returns whether the call is over.
    pub(super) fn run_at_once(&mut self, progress: &mut Progress) -> bool {
        while let Some(args) = progress.ops.as_slice().first() {
            let place = self.place(args, progress);
            let mut outcome = match self.admit(args, &place, progress) {
                Err(status) => Some(Outcome::failed(place.op, status)),
                Ok(()) => self.execute_at_once(args, place.room, progress.ops.len() == 1),
            };
            let Some(outcome) = &mut outcome else {
                // The operation is admitted once more.
                self.arrival = self.arrival.or(self.shares.take());
                return false;
            };
            let about = (outcome.status() != Status::OK).then(|| About::of(args));
            let _ = progress.ops.next();
            if let ControlFlow::Break(status) = self.conclude(progress, &place, outcome) {
                self.warn(place.op, status, about.unwrap_or(About::Current(None)));
                return true;
            }
        }
        self.conclude_all(progress);
        true
    }

    fn execute_at_once(&mut self, args: &Args, room: usize, is_last: bool) -> Option<Outcome> {
        Some(match args {
            Args::Sequence(_) => self.sequenced(),
            Args::PutFh(args) => Outcome::PutFh(self.put_fh(args)),
            Args::PutRootFh => Outcome::PutRootFh(self.put_root()),
            Args::GetAttr(args) => Outcome::GetAttr(self.attributes_at_once(args)?),
            // READs of several files go to one thread together (`ahead.rs`).
            Args::Read(args) if is_last => Outcome::Read(Ok(self.read_at_once(args, room)?)),
            _ => return None,
        })
    }

    /// Attributes that the file system knows without waiting, and nobody else has to be asked for.
    fn attributes_at_once(&self, args: &ops::GetAttr) -> Option<Answer<ops::GetAttrOk>> {
        let file = self.file().ok()?;
        let waits = args.asked.contains(Attribute::Acl)
            || !args.asked.and(&OF_USAGE).is_empty()
            || self.names().is_some() && !args.asked.and(&OF_FILE).is_empty()
            || self.shared.claims.writer(Self::key(&file), None).is_some();
        if waits {
            return None;
        }
        let attributes = file.attributes_at_once()?.ok()?;
        // None of the attributes that are left is asked for elsewhere.
        let asked = self.asked(&file, args.asked).now_or_never()?;
        let told = match &asked {
            Ok(asked) => self.told(asked, &file, &attributes).now_or_never()?,
            Err(status) => Err(*status),
        };
        Some(told.map(|attributes| ops::GetAttrOk { attributes }))
    }

    /// Not too many bytes of an open file that are in memory.
    fn read_at_once(&mut self, args: &ops::Read, room: usize) -> Option<ops::ReadOk> {
        let count = usize::try_from(args.count).ok().filter(|count| (1..=UNASKED_READ_BYTES).contains(count))?;
        // Without sessions, a stateid says whose it is.
        if self.minor == 0 || special(args.state).ok()?.is_some() {
            return None;
        }
        let file = &self.current.as_ref()?.file;
        let state = self.state_of(args.state, false).ok()?;
        let pin = self.session().ok()?.client().held.pin(state, Self::key(file), Access::READ.bits() as u8).ok()??;
        let count = count.min((room.saturating_sub(READ_RESULTS_BYTES) & !3).max(4));
        let buffer = self.context.connection.allocator.try_allocate(count)?;
        let via = Via::open(file.caller.clone(), pin.open.clone()).arrived(self.shares);
        let read = file.file_system.read_at_once(&via, args.offset, count, buffer).ok()?;
        self.holds_memory = true;
        Some(ops::ReadOk { end: read.end, data: read.buffer.freeze() })
    }
}
