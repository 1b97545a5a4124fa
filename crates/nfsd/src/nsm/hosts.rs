//! The monitored hosts, in memory: which hosts hold locks, which must still be notified of our restart, and which state
//! numbers they have announced.
//!
//! Nothing here waits or touches the disk: [`Monitor`](super::Monitor) does. A host that holds nothing any more stays
//! for a while, because it may lock again soon; so does a host that was not reached, for the next start. At the limits
//! both make room for others.

use super::list::{FileNumber, Listed};
use bytes::Bytes;
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::nsm::is_same_host;
use rpcrdma_oncrpc::ClientNetwork;
use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};
use tokio::sync::OnceCell;

/// The most monitored hosts: each is a file in the state directory, and a notice after a restart.
pub(crate) const MAX_HOSTS: usize = 4096;
/// The most hosts with one address: a host counts once for each of our addresses that it mounts from, and many hosts
/// may be behind one address translation.
pub(crate) const MAX_HOSTS_OF_ADDRESS: usize = 64;
/// The most hosts in one network ([`ClientNetwork`]): one host may have all addresses of an IPv6 network.
pub(crate) const MAX_HOSTS_OF_NETWORK: usize = 512;
/// How long a host that holds nothing stays on the list, in seconds: a host that locks and unlocks again and again does
/// not cause a write to the disk each time.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(60);
/// How long after a restart we try to reach a host, in seconds: a host that is away for longer gets the next start's
/// notice.
pub(crate) const NOTIFY_TIME: Duration = Duration::from_secs(15 * 60);
/// For how long a host repeats the notice of one restart, in seconds: as long as we do, and as Linux does.
pub(crate) const REPEAT_TIME: Duration = NOTIFY_TIME;
/// The pause after the first unanswered notice, in seconds. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest such pause, in seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The most notices under way: they take sockets, and cause load in the network.
pub(crate) const MAX_NOTICES: usize = 16;
/// The most notices under way to one network: silent hosts there leave places for others. To one address there is one
/// at a time.
pub(crate) const MAX_NOTICES_OF_NETWORK: usize = 4;
/// The least time between two notices of a host that the server believes: an attacker who forges notices frees the
/// locks of one host at most this often. The server does not reply to notices in between, and they come again.
pub(crate) const NOTICE_INTERVAL: Duration = Duration::from_secs(5);

/// Why a host is on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It holds locks, as far as we know.
    Holds,
    /// It has held nothing since this time.
    Idle(Timestamp),
    /// It held locks before our restart.
    Past,
}

/// Our notice to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    /// It was notified, or need not be.
    Done,
    /// It must be notified at this time, after this pause between two attempts.
    Due(Timestamp, Duration),
    /// A notice is under way; with the pause as above.
    UnderWay(Duration),
    /// It was not reached: the next start notifies it.
    GivenUp,
}

/// Whether the host is on the disk.
pub(super) type OnDisk = Arc<OnceCell<()>>;

struct Host {
    local: IpAddr,
    name: Bytes,
    file: FileNumber,
    on_disk: OnDisk,
    used: Use,
    notice: Notice,
    /// The last state number that it announced, and when.
    heard: Option<(u32, Timestamp)>,
}

impl Host {
    fn listed(&self, address: IpAddr) -> Listed {
        Listed { address, local: self.local, name: self.name.clone() }
    }

    /// Whether it may make room for another host.
    fn is_spare(&self) -> bool {
        matches!(
            (self.used, self.notice),
            (Use::Idle(_), Notice::Done | Notice::GivenUp) | (Use::Past, Notice::GivenUp)
        )
    }
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) hosts: usize,
    /// Hosts that must still be notified of our restart.
    pub(super) untold: usize,
}

/// The result of a notice from a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The server monitors no host of that name at that address.
    Unknown,
    /// The host has already announced this state.
    Again,
    /// Too soon after another notice.
    TooSoon,
    /// The hosts of these names have restarted; no name if the host has not come back to us since our own restart.
    Restarted(Vec<Bytes>),
}

/// The table.
#[derive(Default)]
pub(super) struct Hosts {
    of: HashMap<IpAddr, Vec<Host>>,
    networks: HashMap<ClientNetwork, usize>,
    count: usize,
}

/// There is no room for another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// A host to put on the list.
pub(super) struct Wanted {
    pub(super) listed: Listed,
    pub(super) file: FileNumber,
    pub(super) on_disk: OnDisk,
    /// The host that made room.
    pub(super) removed: Option<FileNumber>,
}

impl Hosts {
    /// A host of an earlier start, to be notified from now on. Returns whether it was new: two equal entries are one
    /// host.
    pub(super) fn add_past(&mut self, file: FileNumber, listed: Listed, now: Timestamp) -> bool {
        if self.find(&listed).is_some() {
            return false;
        }
        let Listed { address, local, name } = listed;
        let (on_disk, notice) = (Arc::new(OnceCell::new_with(Some(()))), Notice::Due(now, Duration::ZERO));
        self.add(address, Host { local, name, file, on_disk, used: Use::Past, notice, heard: None });
        true
    }

    fn add(&mut self, address: IpAddr, host: Host) {
        self.of.entry(address).or_default().push(host);
        *self.networks.entry(ClientNetwork::of(address)).or_default() += 1;
        self.count += 1;
    }

    fn find(&mut self, listed: &Listed) -> Option<&mut Host> {
        let same = |host: &&mut Host| host.local == listed.local && host.name == listed.name;
        self.of.get_mut(&listed.address)?.iter_mut().find(same)
    }

    /// A host takes a lock. `file` is for a new host.
    pub(super) fn want(&mut self, listed: Listed, file: FileNumber) -> Result<Wanted, Full> {
        if let Some(host) = self.find(&listed) {
            host.used = Use::Holds;
            return Ok(Wanted { file: host.file, on_disk: host.on_disk.clone(), listed, removed: None });
        }
        let removed = self.make_room(listed.address)?;
        let on_disk = OnDisk::default();
        let Listed { address, local, name } = listed.clone();
        let (used, notice) = (Use::Holds, Notice::Done);
        self.add(address, Host { local, name, file, on_disk: on_disk.clone(), used, notice, heard: None });
        Ok(Wanted { listed, file, on_disk, removed })
    }

    /// Makes room for one more host with this address: at a limit, a host that is not needed goes.
    fn make_room(&mut self, address: IpAddr) -> Result<Option<FileNumber>, Full> {
        let network = ClientNetwork::of(address);
        let of_address = self.of.get(&address).map_or(0, Vec::len);
        let of_network = self.networks.get(&network).copied().unwrap_or(0);
        let is_inside: Box<dyn Fn(IpAddr) -> bool> = match () {
            () if of_address >= MAX_HOSTS_OF_ADDRESS => Box::new(move |other| other == address),
            () if of_network >= MAX_HOSTS_OF_NETWORK => Box::new(move |other| ClientNetwork::of(other) == network),
            () if self.count >= MAX_HOSTS => Box::new(|_| true),
            () => return Ok(None),
        };
        let found = self
            .of
            .iter()
            .filter(|(address, _)| is_inside(**address))
            .find_map(|(address, hosts)| hosts.iter().position(Host::is_spare).map(|at| (*address, at)));
        let (address, at) = found.ok_or(Full)?;
        Ok(self.take(address, at).map(|host| host.file))
    }

    fn take(&mut self, address: IpAddr, at: usize) -> Option<Host> {
        let hosts = self.of.get_mut(&address).filter(|hosts| at < hosts.len())?;
        let host = hosts.swap_remove(at);
        if hosts.is_empty() {
            self.of.remove(&address);
        }
        let network = ClientNetwork::of(address);
        if let Some(count) = self.networks.get_mut(&network) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.networks.remove(&network);
            }
        }
        self.count = self.count.saturating_sub(1);
        Some(host)
    }

    /// A host holds nothing any more, under whichever of our addresses it is on the list.
    pub(super) fn forget(&mut self, address: IpAddr, name: &[u8], now: Timestamp) {
        for host in self.of.get_mut(&address).into_iter().flatten().filter(|host| host.name == name) {
            if host.used == Use::Holds {
                host.used = Use::Idle(now);
            }
        }
    }

    /// Removes hosts that have held nothing for long, and returns their files. `holds` has the last word.
    pub(super) fn sweep(&mut self, now: Timestamp, holds: impl Fn(IpAddr, &[u8]) -> bool) -> Vec<FileNumber> {
        let mut idle = Vec::new();
        for (address, hosts) in &mut self.of {
            for (at, host) in hosts.iter_mut().enumerate() {
                match host.used {
                    // It has taken a lock since: the two reports may cross.
                    Use::Idle(_) if holds(*address, &host.name) => host.used = Use::Holds,
                    Use::Idle(since) if now.since(since) < IDLE_TIME || !host.is_spare() => {}
                    // Its notice may come again. If the server had forgotten the first one, the second would free the
                    // new locks.
                    // NSM-1-d
                    Use::Idle(_) if host.heard.is_some_and(|(_, when)| now.since(when) < REPEAT_TIME) => {}
                    Use::Idle(_) => idle.push((*address, at)),
                    Use::Holds | Use::Past => {}
                }
            }
        }
        // From the last on, because `take` moves the last entry into the gap.
        idle.into_iter().rev().filter_map(|(address, at)| self.take(address, at)).map(|host| host.file).collect()
    }

    /// Whether a host of this name at this address is monitored.
    pub(super) fn is_monitored(&self, address: IpAddr, name: &[u8]) -> bool {
        let hosts = self.of.get(&address);
        hosts.is_some_and(|hosts| hosts.iter().any(|host| host.used != Use::Past && is_same_host(&host.name, name)))
    }

    /// A notice from this address. The server allocates memory only if it believes the notice.
    pub(super) fn hear(&mut self, address: IpAddr, name: &[u8], state: u32, now: Timestamp) -> Heard {
        let Some(hosts) = self.of.get_mut(&address) else { return Heard::Unknown };
        // A host that has not come back to us holds nothing to free; but its notice may be repeated after it has come
        // back.
        let is_meant = |host: &Host| is_same_host(&host.name, name);
        let (mut is_known, mut is_soon, mut is_news) = (false, false, false);
        for host in hosts.iter().filter(|host| is_meant(host)) {
            is_known = true;
            // A virtual machine that was reset to an earlier state counts from there: the same number after so long a
            // time is another restart.
            // NSM-1-d
            let is_again = host.heard.is_some_and(|(heard, when)| heard == state && now.since(when) < REPEAT_TIME);
            is_news |= !is_again;
            is_soon |= !is_again && host.heard.is_some_and(|(_, when)| now.since(when) < NOTICE_INTERVAL);
        }
        match (is_known, is_news, is_soon) {
            (false, _, _) => return Heard::Unknown,
            (true, false, _) => return Heard::Again,
            (true, true, true) => return Heard::TooSoon,
            (true, true, false) => {}
        }
        let mut names: Vec<Bytes> = Vec::new();
        for host in hosts.iter_mut().filter(|host| is_meant(host)) {
            // NSM-1-d
            host.heard = Some((state, now));
            if host.used != Use::Past && !names.contains(&host.name) {
                names.push(host.name.clone());
            }
        }
        Heard::Restarted(names)
    }

    /// Begins the notices that are due, within the limits.
    pub(super) fn begin_notices(&mut self, now: Timestamp) -> Vec<Listed> {
        let (mut all, mut networks, mut due) = (0, HashMap::<ClientNetwork, usize>::new(), Vec::new());
        for (address, hosts) in &self.of {
            if hosts.iter().any(|host| matches!(host.notice, Notice::UnderWay(_))) {
                all += 1;
                *networks.entry(ClientNetwork::of(*address)).or_default() += 1;
                continue;
            }
            let first = hosts.iter().enumerate().filter_map(|(at, host)| match host.notice {
                Notice::Due(when, _) if when <= now => Some((when, at)),
                _ => None,
            });
            due.extend(first.min().map(|(when, at)| (when, *address, at)));
        }
        // The host that has waited longest comes first.
        due.sort();
        let mut begun = Vec::new();
        for (_, address, at) in due {
            let of_network = networks.entry(ClientNetwork::of(address)).or_default();
            if all >= MAX_NOTICES || *of_network >= MAX_NOTICES_OF_NETWORK {
                continue;
            }
            let Some(host) = self.of.get_mut(&address).and_then(|hosts| hosts.get_mut(at)) else { continue };
            let Notice::Due(_, pause) = host.notice else { continue };
            host.notice = Notice::UnderWay(pause);
            (all, *of_network) = (all + 1, *of_network + 1);
            begun.push(host.listed(address));
        }
        begun
    }

    /// When the next notice that is not under way is due.
    pub(super) fn next_notice(&self) -> Option<Timestamp> {
        let due = self.of.values().flatten().filter_map(|host| match host.notice {
            Notice::Due(when, _) => Some(when),
            _ => None,
        });
        due.min()
    }

    /// A host has answered our notice. It has a while to come back: if we start again before that, we notify it again.
    pub(super) fn told(&mut self, listed: &Listed, now: Timestamp) {
        let Some(host) = self.find(listed) else { return };
        host.notice = Notice::Done;
        // NSM-1-b
        if host.used == Use::Past {
            host.used = Use::Idle(now);
        }
    }

    /// A host has not answered our notice. Returns whether we now give it up.
    pub(super) fn not_told(&mut self, listed: &Listed, now: Timestamp, restarted: Timestamp) -> bool {
        let Some(host) = self.find(listed) else { return false };
        let pause = match host.notice {
            Notice::UnderWay(pause) => pause.saturating_mul(2).clamp(FIRST_PAUSE, LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        let is_over = (now + pause).since(restarted) > NOTIFY_TIME;
        host.notice = if is_over { Notice::GivenUp } else { Notice::Due(now + pause, pause) };
        is_over
    }

    pub(super) fn sizes(&self) -> Sizes {
        let is_untold = |host: &&Host| matches!(host.notice, Notice::Due(..) | Notice::UnderWay(_));
        Sizes { hosts: self.count, untold: self.of.values().flatten().filter(is_untold).count() }
    }
}
