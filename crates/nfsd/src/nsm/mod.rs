//! The status monitor (NSM): the hosts that the server notifies of its restart, and the hosts that notify the server of
//! theirs.
//!
//! Locks of NFS version 3 end with the host that holds them, and nobody renews them. So lockd has each host put on a
//! list ([`Monitor::monitor`]) before its first lock is granted; the list is durable. After a restart every host on it
//! is told ([`notices`]), and claims its locks again; who does not is off the list after a while. A host that tells us
//! of its restart ([`service`]) has its locks freed, those of the host at the address that the notice comes from.
//!
//! Owns the list on the disk ([`list`]) and the table of who is on it ([`hosts`]). A disk that fails fails the lock.

mod disk;
mod hosts;
mod list;
mod notices;
mod service;

use crate::{Origin, Outside, Queue};
use bytes::Bytes;
use hosts::{Heard, Hosts, Wanted};
use list::{FileNumber, List, Listed};
use rpcrdma_env::{BoxFuture, Clock, Env, Random, Timestamp};
use rpcrdma_nfs::nsm::MAX_NAME_OCTETS;
pub(crate) use service::NsmService;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Who holds locks: lockd, which statd tells of restarts.
pub(crate) trait Holders: Send + Sync {
    /// The host of this name at this address has restarted: all that it holds and waits for is freed.
    fn rebooted(&self, address: IpAddr, name: &[u8]);

    /// Whether that host holds or waits for anything.
    fn holds(&self, address: IpAddr, name: &[u8]) -> bool;
}

/// Why a host cannot be monitored: it gets no locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotMonitored {
    /// Its name is too long.
    #[error("the host's name is longer than {MAX_NAME_OCTETS} bytes")]
    Name,
    /// As many as may be are monitored, in all or of its address or network.
    #[error("no more hosts can be monitored")]
    Full,
    /// The disk does not take it.
    #[error("the list of hosts cannot be written")]
    Disk,
}

/// Why the list of hosts cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// It cannot be read or written.
    #[error("the list of hosts with locks in {} cannot be used", directory.display())]
    Io {
        /// The state directory.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another server uses it.
    #[error("another server that runs has the list of hosts with locks in {}", directory.display())]
    InUse {
        /// The state directory.
        directory: PathBuf,
    },
}

/// What the monitor has done since it began, for an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MonitorCounts {
    /// Hosts on the list.
    pub hosts: usize,
    /// Those that are still to be told of our restart.
    pub untold: usize,
    /// Hosts that have answered our notice.
    pub told: u64,
    /// Attempts to tell a host that were not answered.
    pub unanswered: u64,
    /// Hosts that were not reached in time: the next start tells them.
    pub given_up: u64,
    /// Notices of hosts that were believed.
    pub believed: u64,
    /// Those that were not: from hosts that hold nothing, from ports that anybody may use, or too many.
    pub disbelieved: u64,
}

#[derive(Default)]
struct Totals {
    told: AtomicU64,
    unanswered: AtomicU64,
    given_up: AtomicU64,
    believed: AtomicU64,
    disbelieved: AtomicU64,
}

/// What a monitor is made with.
pub(crate) struct Setup<'a> {
    /// The state directory, and which of the servers that share it this is.
    pub(crate) directory: &'a Path,
    pub(crate) server: Option<u64>,
    /// The name under which hosts know us.
    pub(crate) name: Bytes,
    pub(crate) queue: Arc<Queue>,
    pub(crate) outside: Arc<dyn Outside>,
}

/// The status monitor of a server.
pub(crate) struct Monitor {
    list: List,
    hosts: Mutex<Hosts>,
    name: Bytes,
    state: u32,
    had_hosts: bool,
    restarted: Timestamp,
    holders: OnceLock<Weak<dyn Holders>>,
    queue: Arc<Queue>,
    outside: Arc<dyn Outside>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    totals: Totals,
    is_driven: AtomicBool,
    /// What has come of the notices was said, or there were none.
    is_told: AtomicBool,
    /// A disk that fails is told of a few times.
    failures: AtomicU64,
}

impl Monitor {
    /// Opens the list, raises the state number, and has every host on the list told by [`drive`](Self::drive). Waits
    /// for the disk.
    pub(crate) fn open(setup: Setup<'_>, env: &Env) -> Result<Arc<Self>, MonitorError> {
        let directory = || setup.directory.to_owned();
        let failed = |source| MonitorError::Io { directory: directory(), source };
        let taken = List::take(setup.directory, setup.server).map_err(failed)?;
        let list = taken.ok_or_else(|| MonitorError::InUse { directory: directory() })?;
        Self::with_list(list, &setup, env).map_err(failed)
    }

    fn with_list(list: List, setup: &Setup<'_>, env: &Env) -> io::Result<Arc<Self>> {
        let past = list.open(env.random.next_u32() >> 2)?;
        let (mut hosts, now) = (Hosts::default(), env.clock.now());
        let mut twice = Vec::new();
        for (file, listed) in past.hosts {
            if !hosts.add_past(file, listed, now) {
                twice.push(file);
            }
        }
        twice.into_iter().try_for_each(|file| list.remove(file))?;
        let untold = hosts.sizes().hosts;
        if past.damaged > 0 {
            tracing::error!(
                files = past.damaged,
                directory = %setup.directory.display(),
                "files of the list of hosts with locks are not as they were written, and are kept aside: hosts that \
                 stood there are not told of this restart"
            );
        }
        if untold > 0 {
            tracing::info!(hosts = untold, state = past.state, "telling hosts that had locks of this restart");
        }
        Ok(Arc::new(Self {
            list,
            hosts: Mutex::new(hosts),
            name: setup.name.clone(),
            state: past.state,
            // Nobody knows who stood in what is damaged.
            had_hosts: untold > 0 || past.damaged > 0,
            restarted: now,
            holders: OnceLock::new(),
            queue: setup.queue.clone(),
            outside: setup.outside.clone(),
            clock: env.clock.clone(),
            random: env.random.clone(),
            totals: Totals::default(),
            is_driven: AtomicBool::new(false),
            is_told: AtomicBool::new(untold == 0),
            failures: AtomicU64::new(0),
        }))
    }

    fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says who holds locks. Once.
    pub(crate) fn connect(&self, holders: Weak<dyn Holders>) {
        let _ = self.holders.set(holders);
    }

    fn holders(&self) -> Option<Arc<dyn Holders>> {
        self.holders.get().and_then(Weak::upgrade)
    }

    /// Puts the host of this name at this address, which knows us by `local`, on the list. The disk has it when this
    /// returns. lockd calls it before each host's first lock is granted, and may call it before each lock: a host that
    /// is on the list costs nothing.
    pub(crate) fn monitor(
        self: &Arc<Self>,
        address: IpAddr,
        local: IpAddr,
        name: &[u8],
    ) -> BoxFuture<'static, Result<(), NotMonitored>> {
        if name.len() > MAX_NAME_OCTETS {
            return Box::pin(std::future::ready(Err(NotMonitored::Name)));
        }
        let [address, local] = [address, local].map(|address| address.to_canonical());
        let listed = Listed { address, local, name: Bytes::copy_from_slice(name) };
        let new = FileNumber(self.random.next_u64());
        let Ok(wanted) = self.hosts().want(listed, new) else {
            return Box::pin(std::future::ready(Err(NotMonitored::Full)));
        };
        if wanted.on_disk.initialized() {
            return Box::pin(std::future::ready(Ok(())));
        }
        let monitor = self.clone();
        Box::pin(async move {
            let Wanted { listed, file, on_disk, removed } = wanted;
            if let Some(removed) = removed {
                monitor.remove(vec![removed]).await;
            }
            let written = on_disk.get_or_try_init(|| monitor.write(file, listed.clone())).await;
            written.copied().map_err(|NotWritten| {
                let now = monitor.clock.now();
                monitor.hosts().forget(listed.address, &listed.name, now);
                NotMonitored::Disk
            })
        })
    }

    async fn write(self: &Arc<Self>, file: FileNumber, listed: Listed) -> Result<(), NotWritten> {
        let origin = Origin::at(SocketAddr::new(listed.address, 0));
        let monitor = self.clone();
        let written = self.queue.ask(origin, move || monitor.list.put(file, &listed)).await;
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.failed(&error);
                Err(NotWritten)
            }
            // The program ends.
            Err(_) => Err(NotWritten),
        }
    }

    /// Takes files of the list away, in their turn.
    async fn remove(self: &Arc<Self>, files: Vec<FileNumber>) {
        if files.is_empty() {
            return;
        }
        let monitor = self.clone();
        let removing = move || {
            for file in files {
                if let Err(error) = monitor.list.remove(file) {
                    monitor.failed(&error);
                }
            }
        };
        let _ = self.queue.ask(Origin::LOCAL, removing).await;
    }

    fn failed(&self, error: &io::Error) {
        let count = self.failures.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if count.is_power_of_two() {
            tracing::warn!(%error, count, "the list of hosts with locks cannot be written: they get no locks of NFS version 3");
        }
    }

    /// The host of this name at this address holds nothing any more. It leaves the list after a while, unless it has
    /// taken a lock since.
    pub(crate) fn forget(&self, address: IpAddr, name: &[u8]) {
        let now = self.clock.now();
        self.hosts().forget(address.to_canonical(), name, now);
    }

    /// Whether somebody may have held locks before this start, and may claim them again.
    pub(crate) fn had_hosts(&self) -> bool {
        self.had_hosts
    }

    /// Our state number: odd, and another one after each start.
    pub(crate) fn state_number(&self) -> u32 {
        self.state
    }

    /// What the monitor has done.
    pub(crate) fn counts(&self) -> MonitorCounts {
        let hosts::Sizes { hosts, untold } = self.hosts().sizes();
        let Totals { told, unanswered, given_up, believed, disbelieved } = &self.totals;
        let [told, unanswered, given_up, believed, disbelieved] =
            [told, unanswered, given_up, believed, disbelieved].map(|total| total.load(Ordering::Relaxed));
        MonitorCounts { hosts, untold, told, unanswered, given_up, believed, disbelieved }
    }

    /// A host says that it has restarted, by a notice from this address. Whether it is answered.
    fn hear(&self, address: IpAddr, name: &[u8], state: u32) -> bool {
        let address = address.to_canonical();
        let heard = self.hosts().hear(address, name, state, self.clock.now());
        let counted = match heard {
            Heard::Restarted(_) => &self.totals.believed,
            // Nothing new: the host had no answer, or says its names.
            Heard::Again => return true,
            Heard::Unknown | Heard::TooSoon => &self.totals.disbelieved,
        };
        counted.fetch_add(1, Ordering::Relaxed);
        match heard {
            Heard::Restarted(names) => {
                for name in names {
                    tracing::debug!(client = %address, name = %name.escape_ascii(), state, "a host has restarted");
                    if let Some(holders) = self.holders() {
                        holders.rebooted(address, &name);
                    }
                }
                true
            }
            Heard::TooSoon => false,
            Heard::Unknown | Heard::Again => true,
        }
    }
}

/// The disk has not taken a host.
struct NotWritten;

#[cfg(test)]
mod tests;
