//! The list on a disk that stops between any two system calls, and loses everything that was not synchronised.

use super::{super::disk::Calls, *};
use std::collections::BTreeMap;

type Names = BTreeMap<String, usize>;

/// A change of the names that a crash may undo.
#[derive(Clone, Debug)]
enum Change {
    Make(String, usize),
    Move(String, String),
    Remove(String),
}

/// A disk: what programs see, and what certainly survives a crash.
#[derive(Clone, Default)]
struct Disk {
    names: Names,
    durable_names: Names,
    changes: Vec<Change>,
    /// Contents as programs see them, and as they certainly survive.
    contents: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// How many calls are left before it stops.
    left: Option<usize>,
    count: usize,
}

fn apply(names: &mut Names, change: &Change) {
    match change {
        Change::Make(name, file) => drop(names.insert(name.clone(), *file)),
        Change::Remove(name) => drop(names.remove(name)),
        Change::Move(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
    }
}

impl Disk {
    /// The disk after a crash: `kept` says which unsynchronised changes survive, `contents` how much of unsynchronised
    /// contents.
    fn after_crash(&self, kept: u32, contents: Lost) -> Self {
        let mut names = self.durable_names.clone();
        for (at, change) in self.changes.iter().enumerate() {
            if kept & (1 << at) != 0 {
                apply(&mut names, change);
            }
        }
        let contents = self.contents.iter().map(|(seen, durable)| {
            let left = match (durable, contents) {
                (Some(durable), _) => durable.clone(),
                (None, Lost::All) => Vec::new(),
                (None, Lost::Half) => seen[..seen.len() / 2].to_vec(),
                (None, Lost::Zeroes) => vec![0; seen.len()],
                (None, Lost::Nothing) => seen.clone(),
            };
            (left.clone(), Some(left))
        });
        Self { durable_names: names.clone(), names, contents: contents.collect(), ..Self::default() }
    }
}

#[derive(Clone, Copy)]
enum Lost {
    All,
    Half,
    Zeroes,
    Nothing,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Disk>>);

impl Shared {
    fn call<T>(&self, call: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        let mut disk = self.0.lock().unwrap();
        match &mut disk.left {
            Some(0) => return Err(io::Error::other("the machine has stopped")),
            Some(left) => *left -= 1,
            None => {}
        }
        disk.count += 1;
        call(&mut disk)
    }
}

fn absent() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Calls for Shared {
    fn names(&self) -> io::Result<Vec<String>> {
        self.call(|disk| Ok(disk.names.keys().cloned().collect()))
    }

    fn read(&self, name: &str, max: u64) -> io::Result<Vec<u8>> {
        self.call(|disk| {
            let file = *disk.names.get(name).ok_or_else(absent)?;
            let octets = &disk.contents[file].0;
            Ok(octets[..octets.len().min(max as usize)].to_vec())
        })
    }

    fn write(&self, name: &str, octets: &[u8]) -> io::Result<()> {
        self.call(|disk| {
            let file = disk.contents.len();
            disk.contents.push((octets.to_vec(), None));
            let change = Change::Make(name.into(), file);
            apply(&mut disk.names, &change);
            disk.changes.push(change);
            Ok(())
        })
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.call(|disk| {
            let file = *disk.names.get(name).ok_or_else(absent)?;
            disk.contents[file].1 = Some(disk.contents[file].0.clone());
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.call(|disk| {
            let change = Change::Move(from.into(), to.into());
            apply(&mut disk.names, &change);
            disk.changes.push(change);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.call(|disk| {
            disk.names.get(name).ok_or_else(absent)?;
            let change = Change::Remove(name.into());
            apply(&mut disk.names, &change);
            disk.changes.push(change);
            Ok(())
        })
    }

    fn sync_names(&self) -> io::Result<()> {
        self.call(|disk| {
            disk.durable_names = disk.names.clone();
            disk.changes.clear();
            Ok(())
        })
    }
}

/// A history of two starts with hosts that come, stay and go. `promised` has the hosts that the list must have.
fn history(disk: &Shared, promised: &mut Vec<&'static str>, state: &mut u32) -> Result<(), ()> {
    let world = Arc::new(World::default());
    let mut start = Start::with_list(List::with_calls(disk.clone()), world.clone()).map_err(drop)?;
    *state = start.monitor.state_number();
    for name in ["a", "b", "c"] {
        start.monitor("192.0.2.1", name).map_err(drop)?;
        promised.push(name);
    }
    start.monitor.forget(ip("192.0.2.1"), b"b");
    // From here on the list need not have it, though it may still.
    promised.retain(|name| *name != "b");
    start.pass(hosts::IDLE_TIME + Duration::from_secs(60));
    start.monitor("192.0.2.1", "d").map_err(drop)?;
    promised.push("d");
    drop(start);
    let mut start = Start::with_list(List::with_calls(disk.clone()), world.clone()).map_err(drop)?;
    *state = start.monitor.state_number();
    start.monitor("192.0.2.1", "a").map_err(drop)?;
    world.answers("192.0.2.1", OutsideTransport::Udp);
    // Hosts that do not come back were notified, and are not promised any more.
    promised.retain(|name| *name == "a");
    start.drive();
    start.pass(Duration::from_secs(5));
    start.monitor("192.0.2.1", "e").map_err(drop)?;
    promised.push("e");
    Ok(())
}

/// proves: NSM-1-b, NSM-1-a
#[test]
fn no_crash_between_any_two_system_calls_loses_a_host_that_is_monitored() {
    let whole = Shared::default();
    history(&whole, &mut Vec::new(), &mut 0).unwrap();
    let count = whole.0.lock().unwrap().count;
    assert!(count > 30, "{count}");
    for stop in 0..=count {
        let disk = Shared::default();
        disk.0.lock().unwrap().left = Some(stop);
        let (mut promised, mut state) = (Vec::new(), 0);
        let ended = history(&disk, &mut promised, &mut state);
        assert!(ended.is_err() || stop >= count - 1, "stopped at {stop} of {count}");
        let stopped = disk.0.lock().unwrap().clone();
        assert!(stopped.changes.len() < 12);
        for kept in 0..1_u32 << stopped.changes.len() {
            for lost in [Lost::All, Lost::Half, Lost::Zeroes, Lost::Nothing] {
                let disk = Shared(Arc::new(Mutex::new(stopped.after_crash(kept, lost))));
                let past = List::with_calls(disk.clone()).open(99).unwrap();
                assert_eq!(past.damaged, 0, "what was never promised is no damage: {stop} {kept:b}");
                assert!(past.state > state && past.state % 2 == 1, "{} after {state}", past.state);
                let there: Vec<&[u8]> = past.hosts.iter().map(|(_, host)| &host.name[..]).collect();
                for name in &promised {
                    assert!(there.contains(&name.as_bytes()), "{name} is lost: stop {stop}, kept {kept:b}");
                }
                let drafts = disk.0.lock().unwrap().names.keys().filter(|name| name.contains(".new")).count();
                assert_eq!(drafts, 0, "none is left");
            }
        }
    }
}

#[test]
fn a_disk_that_fails_fails_the_lock_and_the_next_attempt_may_succeed() {
    let disk = Shared::default();
    let start = Start::with_list(List::with_calls(disk.clone()), Arc::default()).unwrap();
    for calls in 0..4 {
        disk.0.lock().unwrap().left = Some(calls);
        assert_eq!(start.monitor("192.0.2.1", "a"), Err(NotMonitored::Disk), "after {calls} calls");
    }
    disk.0.lock().unwrap().left = None;
    assert_eq!(start.monitor("192.0.2.1", "a"), Ok(()));
    let past = List::with_calls(disk).open(0).unwrap();
    assert_eq!(past.hosts.len(), 1);
}

#[test]
fn what_is_damaged_is_kept_aside_and_begins_a_grace_period() {
    let scratch = tempfile::tempdir().unwrap();
    let world = Arc::new(World::default());
    let start = Start::at(scratch.path(), &world);
    start.monitor("192.0.2.1", "a").unwrap();
    assert!(!start.monitor.had_hosts());
    drop(start);
    let directory = scratch.path().join("nsm-0000000000000007");
    let file = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let file = file.into_iter().find(|path| path.to_str().unwrap().contains("host-")).unwrap();
    let mut octets = std::fs::read(&file).unwrap();
    octets[20] ^= 1;
    std::fs::write(&file, &octets).unwrap();
    let start = Start::at(scratch.path(), &world);
    assert!(start.monitor.had_hosts(), "somebody may want to claim his locks");
    assert_eq!((start.monitor.counts().hosts, start.monitor.state_number()), (0, 3));
    assert!(file.with_extension("damaged").exists());
    drop(start);
    // If the state number is unknown, the server does not begin again with the first.
    std::fs::write(directory.join("state"), b"junk").unwrap();
    let start = Start::at(scratch.path(), &world);
    assert!(start.monitor.state_number() > 3 && start.monitor.state_number() % 2 == 1);
}

#[test]
fn two_servers_do_not_share_a_list() {
    let scratch = tempfile::tempdir().unwrap();
    let one = List::take(scratch.path(), Some(1)).unwrap();
    assert!(one.is_some());
    assert!(List::take(scratch.path(), Some(1)).unwrap().is_none());
    assert!(List::take(scratch.path(), Some(2)).unwrap().is_some());
    drop(one);
    assert!(List::take(scratch.path(), Some(1)).unwrap().is_some());
}

/// proves: NSM-1-a
#[test]
fn the_state_number_is_odd_and_another_one_after_each_start() {
    let scratch = tempfile::tempdir().unwrap();
    let world = Arc::new(World::default());
    let states: Vec<u32> = (0..5).map(|_| Start::at(scratch.path(), &world).monitor.state_number()).collect();
    assert_eq!(states, [1, 3, 5, 7, 9]);
}
