//! The monitored hosts, in memory: which hosts hold locks, which must still be notified of our restart, what they have
//! announced of theirs.
//!
//! Nothing here waits and nothing here touches the disk: [`Monitor`](super::Monitor) does. A host that holds nothing
//! any more stays for a while, as it may lock again at once; so does one that was not reached, for the next start. Both
//! make room for others at the limits.

use super::list::{FileNumber, Listed};
use bytes::Bytes;
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::nsm::is_same_host;
use rpcrdma_oncrpc::ClientNetwork;
use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};
use tokio::sync::OnceCell;

/// The most hosts that are monitored, in number: files in the state directory, and notices after a restart.
pub(crate) const MAX_HOSTS: usize = 4096;
/// The most of them with one address, in number: a host is one for each of our addresses that it mounts from, and many
/// hosts may be behind one address that translates.
pub(crate) const MAX_HOSTS_OF_ADDRESS: usize = 64;
/// The most of them in one network ([`ClientNetwork`]), in number: one host may have all addresses of an IPv6 network.
pub(crate) const MAX_HOSTS_OF_NETWORK: usize = 512;
/// How long a host that holds nothing stays on the list, in seconds: who locks and unlocks again and again does not
/// have the disk written each time.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(60);
/// How long after a restart we try to reach a host, in seconds: one that was away for longer has the next start's
/// notice.
pub(crate) const NOTIFY_TIME: Duration = Duration::from_secs(15 * 60);
/// For how long a host says the same restart again, in seconds: as long as we do ourselves, and as Linux does.
pub(crate) const REPEAT_TIME: Duration = NOTIFY_TIME;
/// The pause after the first notice that was not answered, in seconds. Twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest such pause, in seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The most notices under way, in number: sockets, and what our restart brings about in the network.
pub(crate) const MAX_NOTICES: usize = 16;
/// The most of them to one network, in number: hosts there that do not answer leave places for others. To one address
/// there is one at a time.
pub(crate) const MAX_NOTICES_OF_NETWORK: usize = 4;
/// The least time between two notices of a host that the server believes: an attacker who forges them frees the locks
/// of one host this often and no more. Notices in between are not answered, and come again.
pub(crate) const NOTICE_INTERVAL: Duration = Duration::from_secs(5);

/// What a host is on the list for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It holds locks, as far as we know.
    Holds,
    /// It holds nothing, since then.
    Idle(Timestamp),
    /// It held something before our restart.
    Past,
}

/// Our notice to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    /// It was notified, or need not be.
    Done,
    /// It must be notified then, after this pause between two attempts.
    Due(Timestamp, Duration),
    /// A notice is under way; the pause as above.
    UnderWay(Duration),
    /// It was not reached: the next start notifies it.
    GivenUp,
}

/// Says whether the disk has a host.
pub(super) type OnDisk = Arc<OnceCell<()>>;

struct Host {
    local: IpAddr,
    name: Bytes,
    file: FileNumber,
    on_disk: OnDisk,
    used: Use,
    notice: Notice,
    /// The state number that it told last, and when.
    heard: Option<(u32, Timestamp)>,
}

impl Host {
    fn listed(&self, address: IpAddr) -> Listed {
        Listed { address, local: self.local, name: self.name.clone() }
    }

    /// Whether it makes room for another.
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
    /// Those that must still be notified of our restart.
    pub(super) untold: usize,
}

/// What becomes of a notice from a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// No host of that name at that address is monitored.
    Unknown,
    /// The host has told this state already.
    Again,
    /// Too soon after another.
    TooSoon,
    /// The hosts of these names have restarted, none if what is meant has not come back to us since our own restart.
    Restarted(Vec<Bytes>),
}

/// The table.
#[derive(Default)]
pub(super) struct Hosts {
    of: HashMap<IpAddr, Vec<Host>>,
    networks: HashMap<ClientNetwork, usize>,
    count: usize,
}

/// There are as many as there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// A host to put on the list.
pub(super) struct Wanted {
    pub(super) listed: Listed,
    pub(super) file: FileNumber,
    pub(super) on_disk: OnDisk,
    /// Who made room.
    pub(super) removed: Option<FileNumber>,
}

impl Hosts {
    /// A host of an earlier start, to notify from now on. Returns whether it was new: twice the same is one.
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

    /// A host takes a lock. `file` is for one that is new.
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

    /// Room for one more with this address: at a limit it is that of one that is not needed.
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

    /// A host holds nothing any more, by whichever of our addresses it knows us.
    pub(super) fn forget(&mut self, address: IpAddr, name: &[u8], now: Timestamp) {
        for host in self.of.get_mut(&address).into_iter().flatten().filter(|host| host.name == name) {
            if host.used == Use::Holds {
                host.used = Use::Idle(now);
            }
        }
    }

    /// Takes hosts away that have held nothing for long, and returns their files. `holds` has the last word.
    pub(super) fn sweep(&mut self, now: Timestamp, holds: impl Fn(IpAddr, &[u8]) -> bool) -> Vec<FileNumber> {
        let mut idle = Vec::new();
        for (address, hosts) in &mut self.of {
            for (at, host) in hosts.iter_mut().enumerate() {
                match host.used {
                    // It has taken a lock since: what says so and what says the contrary may cross.
                    Use::Idle(_) if holds(*address, &host.name) => host.used = Use::Holds,
                    Use::Idle(since) if now.since(since) < IDLE_TIME || !host.is_spare() => {}
                    // Its notice may come again, and would free what it has locked since if the first were forgotten.
                    // NSM-1-d
                    Use::Idle(_) if host.heard.is_some_and(|(_, when)| now.since(when) < REPEAT_TIME) => {}
                    Use::Idle(_) => idle.push((*address, at)),
                    Use::Holds | Use::Past => {}
                }
            }
        }
        // From the last on, as others take the places of those that go.
        idle.into_iter().rev().filter_map(|(address, at)| self.take(address, at)).map(|host| host.file).collect()
    }

    /// Whether a host of this name at this address is monitored.
    pub(super) fn is_monitored(&self, address: IpAddr, name: &[u8]) -> bool {
        let hosts = self.of.get(&address);
        hosts.is_some_and(|hosts| hosts.iter().any(|host| host.used != Use::Past && is_same_host(&host.name, name)))
    }

    /// A notice from this address. It allocates nothing unless the server believes it.
    pub(super) fn hear(&mut self, address: IpAddr, name: &[u8], state: u32, now: Timestamp) -> Heard {
        let Some(hosts) = self.of.get_mut(&address) else { return Heard::Unknown };
        // One that has not come back to us has nothing that could be freed; but its notice may come again after it has.
        let is_meant = |host: &Host| is_same_host(&host.name, name);
        let (mut is_known, mut is_soon, mut is_news) = (false, false, false);
        for host in hosts.iter().filter(|host| is_meant(host)) {
            is_known = true;
            // A host that was put back to what it was, as virtual machines are, counts from there: what it says so late
            // is another restart.
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

    /// Begins the notices that are due, as many as may be under way.
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
        // The one that waits for longest is first.
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

    /// When the next notice is due that is not under way.
    pub(super) fn next_notice(&self) -> Option<Timestamp> {
        let due = self.of.values().flatten().filter_map(|host| match host.notice {
            Notice::Due(when, _) => Some(when),
            _ => None,
        });
        due.min()
    }

    /// A host has answered our notice. It has a while to come back: if we start again before, it is notified again.
    pub(super) fn told(&mut self, listed: &Listed, now: Timestamp) {
        let Some(host) = self.find(listed) else { return };
        host.notice = Notice::Done;
        // NSM-1-b
        if host.used == Use::Past {
            host.used = Use::Idle(now);
        }
    }

    /// A host has not answered our notice. Whether it is left alone from now on.
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
