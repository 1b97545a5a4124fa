//! How many hosts the server monitors, and what happens to hosts that hold nothing.

use super::*;
use crate::nsm::hosts::*;

fn files(directory: &Path) -> usize {
    let names = std::fs::read_dir(directory.join("nsm-0000000000000007")).unwrap();
    names.filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("host-")).count()
}

#[test]
fn a_host_is_on_the_disk_once_however_often_it_locks() {
    let scratch = tempfile::tempdir().unwrap();
    let mut start = Start::at(scratch.path(), &Arc::default());
    for _ in 0..10 {
        start.monitor("192.0.2.1", "a").unwrap();
        start.monitor.forget(ip("192.0.2.1"), b"a");
        start.pass(IDLE_TIME / 4);
    }
    assert_eq!(files(scratch.path()), 1);
    // Under another address of ours it is another host on the list: it knows us by both.
    now_or_never(start.monitor.monitor(ip("192.0.2.1"), ip("192.0.2.253"), b"a")).unwrap();
    assert_eq!(files(scratch.path()), 2);
    start.monitor.forget(ip("::ffff:192.0.2.1"), b"a");
    start.pass(2 * IDLE_TIME);
    assert_eq!((files(scratch.path()), start.monitor.counts().hosts), (0, 0));
}

#[test]
fn who_holds_locks_stays_though_it_was_to_be_forgotten() {
    let scratch = tempfile::tempdir().unwrap();
    let mut start = Start::at(scratch.path(), &Arc::default());
    start.monitor("192.0.2.1", "a").unwrap();
    start.locks.held.lock().unwrap().push((ip("192.0.2.1"), b"a".to_vec()));
    start.monitor.forget(ip("192.0.2.1"), b"a");
    start.pass(3 * IDLE_TIME);
    assert_eq!(files(scratch.path()), 1);
}

#[test]
fn one_address_has_so_many_hosts_and_others_do_not_notice() {
    let scratch = tempfile::tempdir().unwrap();
    let start = Start::at(scratch.path(), &Arc::default());
    for host in 0..MAX_HOSTS_OF_ADDRESS {
        start.monitor("192.0.2.1", &format!("a{host}")).unwrap();
    }
    assert_eq!(start.monitor("192.0.2.1", "one more"), Err(NotMonitored::Full));
    assert_eq!(start.monitor("192.0.2.1", "a3"), Ok(()), "who is there is there");
    assert_eq!(start.monitor("192.0.2.2", "one more"), Ok(()));
    // A host that holds nothing makes room.
    start.monitor.forget(ip("192.0.2.1"), b"a3");
    assert_eq!(start.monitor("192.0.2.1", "one more"), Ok(()));
    assert_eq!(start.monitor("192.0.2.1", "a3"), Err(NotMonitored::Full));
    assert_eq!(files(scratch.path()), MAX_HOSTS_OF_ADDRESS + 1);
}

fn listed(address: String, name: &str) -> Listed {
    Listed { address: ip(&address), local: ip(LOCAL), name: Bytes::copy_from_slice(name.as_bytes()) }
}

#[test]
fn a_network_and_all_of_them_have_so_many_hosts() {
    let mut hosts = Hosts::default();
    let mut next = 0;
    let mut want = |hosts: &mut Hosts, listed| {
        next += 1;
        hosts.want(listed, FileNumber(next)).map(|wanted| wanted.removed)
    };
    for host in 0..MAX_HOSTS_OF_NETWORK {
        assert_eq!(want(&mut hosts, listed(format!("2001:db8::{host:x}"), "a")), Ok(None));
    }
    assert_eq!(want(&mut hosts, listed("2001:db8::ffff".into(), "a")), Err(Full));
    for host in 0..MAX_HOSTS - MAX_HOSTS_OF_NETWORK {
        let address = format!("10.0.{}.{}", host / 250, host % 250 + 1);
        assert_eq!(want(&mut hosts, listed(address, "a")), Ok(None));
    }
    assert_eq!(want(&mut hosts, listed("192.0.2.1".into(), "a")), Err(Full));
    hosts.forget(ip("10.0.0.1"), b"a", Timestamp::ZERO);
    assert!(matches!(want(&mut hosts, listed("192.0.2.1".into(), "a")), Ok(Some(_))), "there is room again");
    assert_eq!(hosts.sizes().hosts, MAX_HOSTS);
}

#[test]
fn a_name_has_so_many_octets() {
    let scratch = tempfile::tempdir().unwrap();
    let start = Start::at(scratch.path(), &Arc::default());
    let longest = "n".repeat(MAX_NAME_BYTES);
    assert_eq!(start.monitor("192.0.2.1", &longest), Ok(()));
    assert_eq!(start.monitor("192.0.2.1", &format!("{longest}n")), Err(NotMonitored::Name));
    drop(start);
    let world = Arc::new(World::default());
    let mut start = Start::at(scratch.path(), &world);
    start.drive();
    assert_eq!(start.monitor.counts().untold, 1, "it is read as it was written");
}

#[test]
fn calls_at_the_same_time_wait_for_one_write() {
    struct Later(Mutex<Vec<Box<dyn FnOnce() + Send>>>);
    impl crate::Workers for Later {
        fn run(&self, job: Box<dyn FnOnce() + Send>) {
            self.0.lock().unwrap().push(job);
        }
        fn threads(&self) -> usize {
            8
        }
    }
    let scratch = tempfile::tempdir().unwrap();
    let later = Arc::new(Later(Mutex::default()));
    let env = Env { clock: Arc::new(TestClock::default()), random: Arc::new(SeededRandom::new(1)) };
    let setup = Setup {
        directory: scratch.path(),
        server: None,
        name: Bytes::new(),
        queue: Queue::new(later.clone()),
        outside: Arc::new(World::default()),
    };
    let monitor = Monitor::open(setup, &env).unwrap();
    let mut calls: Vec<_> = (0..3).map(|_| monitor.monitor(ip("192.0.2.1"), ip(LOCAL), b"a")).collect();
    let poll = |calls: &mut Vec<BoxFuture<'static, Result<(), NotMonitored>>>| {
        let cx = &mut Context::from_waker(Waker::noop());
        calls.iter_mut().map(|call| call.as_mut().poll(cx).is_ready()).collect::<Vec<_>>()
    };
    assert_eq!(poll(&mut calls), [false; 3], "before the disk has it nobody is granted a lock");
    let jobs = std::mem::take(&mut *later.0.lock().unwrap());
    assert_eq!(jobs.len(), 1);
    // The call that began the job is gone: another call goes on.
    drop(calls.remove(0));
    jobs.into_iter().for_each(|job| job());
    let mut ready = poll(&mut calls);
    for job in std::mem::take(&mut *later.0.lock().unwrap()) {
        job();
        ready = poll(&mut calls);
    }
    assert!(ready.contains(&true), "{ready:?}");
}
