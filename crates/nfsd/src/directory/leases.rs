//! Leases of the host on files that are delegated to clients (`F_SETLEASE`, fcntl(2)). If a program of the host opens
//! or truncates such a file in a way that the delegation excludes, it waits until the server gives the lease back, or
//! as long as `/proc/sys/fs/lease-break-time` says.
//!
//! A file has one lease, however many clients have it delegated for reading. The lease is on a descriptor that is open
//! anyway. A lease for writing is on the server's only descriptor of the file, which all code here then shares, because
//! any other would break the lease. Every second, with the other [upkeep](super::upkeep), the server looks whether a
//! program wants the lease: the kernel sends no signal, so a program that uses this library needs no handler
//! (docs/decisions/0009). Code here that would break the server's own lease gives it up instead. Owns a reference to
//! the descriptor while the lease lasts. Errors are faults: then the server does not delegate the file.

use super::{
    Inner, Object,
    attributes::fault,
    object::Mode,
    opens::Open,
    sys::{self, KernelLock},
};
use crate::{Broken, Fault, FileId, HostLease, OpenFile, claims::Kind};
use rustix::fd::{AsFd, OwnedFd};
use std::{
    any::Any,
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

/// A lease, and the holders to notify when it is broken.
struct Lease {
    kind: Kind,
    fd: Arc<OwnedFd>,
    /// The holders, by number, until they are notified.
    holders: HashMap<u64, Option<Broken>>,
    /// The host has it back, or wants it back.
    is_broken: bool,
    /// The host has it back.
    is_given_up: bool,
}

impl Lease {
    /// The holders to notify: each once.
    fn broken(&mut self) -> Vec<Broken> {
        self.is_broken = true;
        self.holders.values_mut().filter_map(mem::take).collect()
    }

    fn give_up(&mut self) {
        if !mem::replace(&mut self.is_given_up, true) {
            // If the kernel does not take it back, closing the descriptor ends it.
            let _ = sys::set_lease(self.fd.as_fd(), KernelLock::None);
        }
    }
}

/// The lease on one file, if there is one.
#[derive(Default)]
pub(super) struct Leased(Mutex<Option<Lease>>);

impl Leased {
    fn lock(&self) -> MutexGuard<'_, Option<Lease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor that all code must share while the file is delegated for writing.
    pub(super) fn shared(&self) -> Option<Arc<OwnedFd>> {
        let lease = self.lock();
        lease.as_ref().filter(|lease| lease.kind == Kind::Write && !lease.is_given_up).map(|lease| lease.fd.clone())
    }

    /// Whether the file is leased for reading.
    pub(super) fn is_for_reading(&self) -> bool {
        self.lock().as_ref().is_some_and(|lease| lease.kind == Kind::Read && !lease.is_given_up)
    }

    /// The server itself is about to open the file in a way that would break its own lease: gives the lease up, and
    /// notifies the holders.
    pub(super) fn give_up_for(&self, mode: Mode) {
        let told = match &mut *self.lock() {
            Some(lease) if lease.kind == Kind::Write || mode != Mode::Read => {
                lease.give_up();
                lease.broken()
            }
            _ => return,
        };
        told.into_iter().for_each(|broken| broken());
    }

    /// If the host wants the lease back, notifies the holders. Returns whether there is a lease.
    fn look(&self) -> bool {
        let told = {
            let mut lease = self.lock();
            let Some(lease) = &mut *lease else { return false };
            if lease.is_broken || sys::lease(lease.fd.as_fd()) == Ok(kernel(lease.kind)) {
                return true;
            }
            lease.broken()
        };
        told.into_iter().for_each(|broken| broken());
        true
    }
}

fn kernel(kind: Kind) -> KernelLock {
    match kind {
        Kind::Read => KernelLock::Read,
        Kind::Write => KernelLock::Write,
    }
}

/// The files that have leases.
#[derive(Default)]
pub(super) struct Leases(Mutex<(u64, HashMap<FileId, Arc<Object>>)>);

impl Leases {
    fn lock(&self) -> MutexGuard<'_, (u64, HashMap<FileId, Arc<Object>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().1.is_empty()
    }
}

/// Holds a lease for one client.
struct Guard {
    object: Arc<Object>,
    inner: Weak<Inner>,
    number: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        // In this order, so that a lease that another thread takes meanwhile is not forgotten.
        let mut all = self.inner.upgrade();
        let mut leases = all.as_mut().map(|inner| inner.leases.lock());
        let ended = {
            let mut lease = self.object.leased.lock();
            match &mut *lease {
                Some(of_file) => {
                    of_file.holders.remove(&self.number);
                    if of_file.holders.is_empty() { lease.take() } else { None }
                }
                None => None,
            }
        };
        if let Some(mut ended) = ended {
            // NFS4-HOST-d
            ended.give_up();
            if let Some(leases) = &mut leases {
                leases.1.remove(&self.object.id);
            }
            drop((ended, leases));
            self.object.opens.return_borrowed();
        }
    }
}

impl Inner {
    /// Takes a lease on an open file, or joins the lease that exists.
    pub(super) fn lease(
        self: &Arc<Self>,
        open: &Arc<dyn OpenFile>,
        kind: Kind,
        broken: Broken,
    ) -> Result<HostLease, Fault> {
        let open: &dyn Any = &**open;
        let open = open.downcast_ref::<Open>().ok_or(Fault::Unsupported)?;
        let object = open.object();
        let fd = open.descriptor(Mode::Read).ok_or(Fault::Unsupported)?;
        let for_writing = open.descriptor(Mode::Write);
        // Another descriptor of this server would break the lease.
        if kind == Kind::Write && !for_writing.is_some_and(|other| Arc::ptr_eq(&fd, &other)) {
            return Err(Fault::Unsupported);
        }
        // Descriptors kept for later calls would prevent the lease.
        match kind {
            Kind::Read => object.forget_writers(),
            Kind::Write => object.forget_opened(),
        }
        let mut leases = self.leases.lock();
        leases.0 = leases.0.wrapping_add(1);
        let number = leases.0;
        let mut lease = object.leased.lock();
        match &mut *lease {
            Some(of_file) if of_file.kind == Kind::Read && kind == Kind::Read && !of_file.is_broken => {
                of_file.holders.insert(number, Some(broken));
            }
            Some(_) => return Err(Fault::Later),
            None => {
                sys::set_lease(fd.as_fd(), kernel(kind)).map_err(fault)?;
                let holders = HashMap::from([(number, Some(broken))]);
                *lease = Some(Lease { kind, fd, holders, is_broken: false, is_given_up: false });
            }
        }
        leases.1.insert(object.id, object.clone());
        drop(lease);
        drop(leases);
        Ok(HostLease::new(Guard { object: object.clone(), inner: Arc::downgrade(self), number }))
    }

    /// Looks for leases that the host wants back.
    pub(super) fn look_for_broken_leases(&self) {
        let leased: Vec<_> = self.leases.lock().1.values().cloned().collect();
        for object in leased {
            object.leased.look();
        }
    }
}
