//! Hosts that notify us of their restart, and callers that pretend to be such a host.

use super::*;
use crate::nsm::hosts::{IDLE_TIME, NOTICE_INTERVAL, NOTIFY_TIME, REPEAT_TIME};
use TransportKind::{Tcp, Udp};

fn start() -> (Start, tempfile::TempDir) {
    let scratch = tempfile::tempdir().unwrap();
    let start = Start::at(scratch.path(), &Arc::default());
    for (address, name) in [("192.0.2.1", "a"), ("192.0.2.1", "b"), ("192.0.2.2", "a")] {
        start.monitor(address, name).unwrap();
    }
    (start, scratch)
}

/// proves: NSM-1-d
#[test]
fn a_notice_frees_what_that_host_at_that_address_has_and_nothing_else() {
    let (start, _scratch) = start();
    assert!(start.notify("192.0.2.1:700", Udp, "a", 5));
    assert_eq!(start.freed(), [(ip("192.0.2.1"), b"a".to_vec())]);
    // Another host's name, an unknown name, an unknown address.
    assert!(start.notify("192.0.2.2:700", Udp, "b", 5));
    assert!(start.notify("192.0.2.1:700", Udp, "c", 5));
    assert!(start.notify("192.0.2.3:700", Udp, "a", 5));
    assert!(start.notify("192.0.2.1:700", Udp, "", 5));
    assert!(start.freed().is_empty());
    assert_eq!((start.monitor.counts().believed, start.monitor.counts().disbelieved), (1, 4));
    // The form of the address from an IPv6 socket.
    assert!(start.notify("[::ffff:192.0.2.2]:700", Tcp, "a.example.org", 5));
    assert_eq!(start.freed(), [(ip("192.0.2.2"), b"a".to_vec())], "with its domain, under the name that it locks by");
}

#[test]
fn a_notice_that_comes_again_frees_nothing_of_what_the_host_has_locked_since() {
    let (mut start, _scratch) = start();
    assert!(start.notify("192.0.2.1:700", Udp, "a.example.org", 5));
    assert_eq!(start.freed().len(), 1);
    start.monitor("192.0.2.1", "a").unwrap();
    // The same restart under another name, and once more: the host got no reply.
    assert!(start.notify("192.0.2.1:700", Udp, "a", 5));
    assert!(start.notify("192.0.2.1:700", Udp, "a", 5));
    start.pass(2 * NOTICE_INTERVAL);
    assert!(start.notify("192.0.2.1:700", Udp, "a", 5));
    assert!(start.freed().is_empty());
    assert!(start.notify("192.0.2.1:700", Udp, "a", 7));
    assert_eq!(start.freed().len(), 1, "it has restarted once more");
}

#[test]
fn a_notice_is_remembered_when_its_host_has_held_nothing_for_a_while() {
    let (mut start, _scratch) = start();
    assert!(start.notify("192.0.2.1:700", Udp, "a", 5));
    assert_eq!(start.freed().len(), 1);
    for name in [b"a", b"b"] {
        start.monitor.forget(ip("192.0.2.1"), name);
    }
    start.pass(3 * IDLE_TIME);
    assert_eq!(start.monitor.counts().hosts, 2, "who has told nothing is forgotten");
    start.monitor("192.0.2.1", "a").unwrap();
    assert!(start.notify("192.0.2.1:700", Udp, "a", 5), "the answer was lost");
    assert!(start.freed().is_empty(), "it has locked since");
    start.monitor.forget(ip("192.0.2.1"), b"a");
    start.pass(NOTIFY_TIME);
    assert_eq!(start.monitor.counts().hosts, 1, "nobody says it so late");
}

/// A virtual machine that starts from the same image each time announces the same state after each start.
#[test]
fn a_host_that_counts_from_the_same_state_again_is_believed_when_its_notice_cannot_be_the_old_one() {
    const SECOND: Duration = Duration::from_secs(1);
    let (mut start, _scratch) = start();
    for _ in 0..3 {
        assert!(start.notify("192.0.2.1:700", Udp, "a", 5));
        assert_eq!(start.freed().len(), 1);
        start.monitor("192.0.2.1", "a").unwrap();
        start.pass(REPEAT_TIME - SECOND);
        assert!(start.notify("192.0.2.1:700", Udp, "a", 5));
        assert!(start.freed().is_empty(), "it is the old one, which had no answer");
        start.pass(SECOND);
    }
}

#[test]
fn a_notice_from_a_port_that_anybody_has_is_not_believed_over_udp() {
    let (start, _scratch) = start();
    for port in [1024, 40_000, 65_535] {
        assert!(start.notify(&format!("192.0.2.1:{port}"), Udp, "a", port), "the answer tells nothing");
    }
    assert!(start.freed().is_empty());
    assert_eq!(start.monitor.counts().disbelieved, 3);
    // TCP proves that the sender has that address.
    assert!(start.notify("192.0.2.1:40000", Tcp, "a", 5));
    assert!(start.notify("192.0.2.2:1023", Udp, "a", 5));
    assert_eq!(start.freed().len(), 2);
}

#[test]
fn forged_notices_free_a_host_s_locks_now_and_then_and_no_more() {
    let (mut start, _scratch) = start();
    let answered = (0..10_000).filter(|state| start.notify("192.0.2.1:700", Udp, "a", *state)).count();
    assert_eq!((answered, start.freed().len()), (1, 1));
    assert!(start.notify("192.0.2.2:700", Udp, "a", 1), "another host does not notice");
    start.pass(NOTICE_INTERVAL);
    assert!(start.notify("192.0.2.1:700", Udp, "a", -7));
    assert!(!start.notify("192.0.2.1:700", Udp, "a", -8));
    assert_eq!(start.freed().len(), 2);
}

#[test]
fn a_host_that_restarts_while_we_are_away_is_not_freed_twice() {
    let (start, scratch) = start();
    drop(start);
    let start = Start::at(scratch.path(), &Arc::default());
    assert!(start.notify("192.0.2.1:700", Udp, "a", 5), "it has nothing yet");
    assert!(start.freed().is_empty());
    start.monitor("192.0.2.1", "a").unwrap();
    assert!(start.notify("192.0.2.1:700", Udp, "a", 5), "the answer was lost");
    assert!(start.freed().is_empty(), "it has locked since");
}

/// proves: NSM-1-e
#[test]
fn what_is_for_our_own_host_is_not_done_for_others() {
    let (start, scratch) = start();
    let asker = nsm::Asker { host: "a".into(), program: 100_021, version: 4, procedure: 16 };
    let private = nsm::Private([7; 16]);
    use nsm::procedure::*;
    let monitor = nsm::Monitor { name: "evil".into(), asker: asker.clone(), private };
    let reply: nsm::StatReply = results(start.ask("192.0.2.9:700", Tcp, MONITOR, &monitor));
    assert_eq!((reply.outcome, reply.state), (nsm::Outcome::Failed, 1));
    let unmonitor = nsm::Unmonitor { name: "a".into(), asker: asker.clone() };
    let reply: nsm::State = results(start.ask("192.0.2.1:700", Tcp, UNMONITOR, &unmonitor));
    assert_eq!(reply.state, 1);
    let reply: nsm::State = results(start.ask("192.0.2.1:700", Udp, UNMONITOR_ALL, &nsm::UnmonitorAll { asker }));
    assert_eq!(reply.state, 1);
    results::<()>(start.ask("127.0.0.1:700", Udp, SIMULATE_CRASH, &nsm::SimulateCrash));
    assert!(matches!(start.ask("192.0.2.1:700", Tcp, 7, &()), Answer::ProcUnavail));
    assert!(start.freed().is_empty());
    drop(start);
    let start = Start::at(scratch.path(), &Arc::default());
    assert_eq!((start.monitor.counts().hosts, start.monitor.state_number()), (3, 3));
}

#[test]
fn a_host_is_told_whether_it_is_monitored_and_nothing_of_others() {
    let (start, _scratch) = start();
    let ask = |from: &str, name: &str| -> nsm::StatReply {
        results(start.ask(from, Udp, nsm::procedure::STAT, &nsm::Stat { name: name.into() }))
    };
    assert_eq!(ask("192.0.2.1:5000", "a"), nsm::StatReply { outcome: nsm::Outcome::Succeeded, state: 1 });
    assert_eq!(ask("192.0.2.2:5000", "b").outcome, nsm::Outcome::Failed);
    assert_eq!(ask("192.0.2.3:5000", "a").outcome, nsm::Outcome::Failed);
}

#[test]
fn what_cannot_be_read_is_garbage() {
    let (start, _scratch) = start();
    // A name that is cut off, and a name that is one byte too long.
    for args in [vec![0, 0, 0, 9, b'a'], {
        let mut encoder = Encoder::new();
        encoder.opaque(&[b'a'; nsm::MAX_NAME_BYTES + 1]);
        encoder.u32(1);
        encoder.finish().to_bytes().to_vec()
    }] {
        struct Raw(Vec<u8>);
        impl Encode for Raw {
            fn encode(&self, encoder: &mut Encoder) {
                for word in self.0.chunks(4) {
                    let mut whole = [0; 4];
                    whole[..word.len()].copy_from_slice(word);
                    encoder.u32(u32::from_be_bytes(whole));
                }
            }
        }
        for procedure in 1..=6 {
            let answer = start.ask("192.0.2.1:700", Udp, procedure, &Raw(args.clone()));
            assert!(matches!(answer, Answer::GarbageArgs), "{procedure}: {answer:?}");
        }
    }
    assert!(start.freed().is_empty());
}
