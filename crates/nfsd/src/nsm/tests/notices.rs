//! Notices of our restart.

use super::*;
use crate::nsm::{hosts::*, notices::NOTICE_LIMIT};
use OutsideTransport::{Tcp, Udp};

fn crowd(directory: &Path, addresses: &[&str]) {
    let start = Start::at(directory, &Arc::default());
    for address in addresses {
        start.monitor(address, "client1").unwrap();
    }
}

/// proves: NSM-1-c, NSM-1-a
#[test]
fn who_had_locks_is_told_once_with_the_new_state_and_is_off_the_list() {
    let scratch = tempfile::tempdir().unwrap();
    crowd(scratch.path(), &["192.0.2.1", "192.0.2.2"]);
    let world = Arc::new(World::default());
    world.answers("192.0.2.1", Udp);
    world.answers("192.0.2.2", Tcp);
    let mut start = Start::at(scratch.path(), &world);
    assert!(start.monitor.had_hosts());
    assert_eq!(start.monitor.counts().untold, 2);
    start.drive();
    start.pass(NOTICE_LIMIT + Duration::from_secs(1));
    let mut calls = world.called();
    calls.sort_by_key(|call| (call.to, call.transport == Tcp));
    let told: Vec<_> = calls.iter().map(|call| (call.to, call.transport)).collect();
    let [one, two] = ["192.0.2.1", "192.0.2.2"].map(ip);
    assert_eq!(told, [(one, Udp), (two, Udp), (two, Tcp)]);
    for call in &calls {
        assert_eq!((call.program, call.version, call.procedure), (100_024, 1, 6));
        assert_eq!(call.from, ip(LOCAL), "from the address that the host knows");
        assert_eq!(call.arguments, nsm::notice(b"server1", 3));
    }
    let counts = start.monitor.counts();
    assert_eq!((counts.hosts, counts.untold, counts.told, counts.unanswered), (2, 0, 2, 0));
    start.pass(NOTIFY_TIME);
    assert!(world.called().is_empty(), "nobody is told twice");
    assert_eq!(start.monitor.counts().hosts, 0);
    drop(start);
    let start = Start::at(scratch.path(), &world);
    assert!(!start.monitor.had_hosts(), "whoever was told and has not come back is off the list");
}

/// A start may fail or end when it has notified some hosts and they have not yet reclaimed their locks.
#[test]
fn who_was_told_and_had_no_time_to_come_back_is_told_by_the_next_start() {
    let scratch = tempfile::tempdir().unwrap();
    crowd(scratch.path(), &["192.0.2.1"]);
    let world = Arc::new(World::default());
    world.answers("192.0.2.1", Udp);
    for told in 1..=2 {
        let mut start = Start::at(scratch.path(), &world);
        assert!(start.monitor.had_hosts(), "it may claim its locks");
        start.drive();
        start.pass(IDLE_TIME - Duration::from_secs(1));
        assert_eq!((world.called().len(), start.monitor.counts().told), (1, 1), "start {told}");
    }
}

#[test]
fn who_locks_again_before_it_is_told_is_told_and_stays() {
    let scratch = tempfile::tempdir().unwrap();
    crowd(scratch.path(), &["192.0.2.1"]);
    let world = Arc::new(World::default());
    let mut start = Start::at(scratch.path(), &world);
    start.drive();
    start.monitor("192.0.2.1", "client1").unwrap();
    start.pass(2 * NOTICE_LIMIT);
    world.answers("192.0.2.1", Udp);
    start.pass(3 * IDLE_TIME);
    assert_eq!((start.monitor.counts().hosts, start.monitor.counts().told), (1, 1));
    drop(start);
    assert_eq!(Start::at(scratch.path(), &world).monitor.counts().untold, 1);
}

#[test]
fn a_host_that_never_answers_costs_a_bounded_number_of_calls_and_is_told_by_the_next_start() {
    let scratch = tempfile::tempdir().unwrap();
    crowd(scratch.path(), &["192.0.2.1"]);
    let world = Arc::new(World::default());
    let mut start = Start::at(scratch.path(), &world);
    start.drive();
    start.pass(NOTIFY_TIME + Duration::from_secs(60));
    let calls = world.called();
    assert!((10..40).contains(&calls.len()), "{}", calls.len());
    assert_eq!(world.most_under_way.load(Ordering::SeqCst), 1);
    let counts = start.monitor.counts();
    assert_eq!((counts.hosts, counts.untold, counts.given_up), (1, 0, 1));
    start.pass(2 * NOTIFY_TIME);
    assert!(world.called().is_empty(), "it is left alone");
    drop(start);
    world.answers("192.0.2.1", Udp);
    let mut start = Start::at(scratch.path(), &world);
    start.drive();
    assert_eq!((world.called().len(), start.monitor.counts().told), (1, 1));
}

#[test]
fn hosts_that_do_not_answer_leave_places_for_others() {
    let scratch = tempfile::tempdir().unwrap();
    let start = Start::at(scratch.path(), &Arc::default());
    // Many hosts of one network, and many names at one address.
    for host in 0..40 {
        start.monitor(&format!("2001:db8::{host:x}"), "client1").unwrap();
        start.monitor("192.0.2.1", &format!("client{host}")).unwrap();
    }
    start.monitor("192.0.2.2", "decent").unwrap();
    drop(start);
    let world = Arc::new(World::default());
    world.answers("192.0.2.2", Udp);
    let mut start = Start::at(scratch.path(), &world);
    start.drive();
    assert!(world.most_under_way.load(Ordering::SeqCst) <= 1 + MAX_NOTICES_OF_NETWORK as u64 + 1);
    assert_eq!(start.monitor.counts().told, 1, "at once");
    let calls = world.called();
    assert_eq!(calls.iter().filter(|call| call.to == ip("192.0.2.1")).count(), 1, "one at a time to one address");
    let of_network = calls.iter().filter(|call| call.to.is_ipv6()).count();
    assert_eq!(of_network, MAX_NOTICES_OF_NETWORK);
}

#[test]
fn so_many_notices_are_under_way_and_no_more() {
    let scratch = tempfile::tempdir().unwrap();
    let addresses: Vec<String> = (0..3 * MAX_NOTICES).map(|host| format!("192.0.2.{host}")).collect();
    crowd(scratch.path(), &addresses.iter().map(String::as_str).collect::<Vec<_>>());
    let world = Arc::new(World::default());
    let mut start = Start::at(scratch.path(), &world);
    start.drive();
    assert_eq!(world.calls.lock().unwrap().len(), MAX_NOTICES);
    start.pass(4 * NOTICE_LIMIT);
    assert_eq!(world.most_under_way.load(Ordering::SeqCst), MAX_NOTICES as u64);
    let all: std::collections::HashSet<_> = world.called().into_iter().map(|call| call.to).collect();
    assert!(all.len() >= 2 * MAX_NOTICES, "each has its turn: {}", all.len());
}
