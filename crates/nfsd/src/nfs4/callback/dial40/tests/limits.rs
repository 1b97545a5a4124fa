//! How many connections to clients the server has and tries to make, for an address, for a network and in a minute.

use super::*;

fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 2049).into()
}

/// proves: NFS4-7530-15-c
#[test]
fn connections_are_limited_at_a_time_by_address_and_in_a_minute() {
    let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
    let dialler = Dialler::default();
    let mut standing: Vec<_> =
        (0..MAX_DIALLED_OF_ADDRESS).map(|_| dialler.permit(address(0), at(0)).unwrap()).collect();
    assert!(dialler.permit(address(0), at(0)).is_none(), "one past the limit of an address");
    for number in standing.len()..MAX_DIALLED {
        standing.push(dialler.permit(address(1 + (number / MAX_DIALLED_OF_ADDRESS) as u8), at(0)).unwrap());
    }
    assert!(dialler.permit(address(200), at(0)).is_none(), "one past the limit of all");
    drop(standing.pop());
    assert!(dialler.permit(address(200), at(0)).is_some());
    standing.clear();
    let left = |counts: &Counts| (counts.all, counts.of.len());
    assert_eq!(left(&lock(&dialler.counts)), (0, 0));
    for _ in MAX_DIALLED_OF_ADDRESS..MAX_DIALS_IN_MINUTE {
        assert!(dialler.permit(address(0), at(1)).is_some());
    }
    assert!(dialler.permit(address(0), at(1)).is_none(), "one past the limit of a minute");
    assert!(dialler.permit(address(9), at(1)).is_some(), "which is the address's own");
    let end = Timestamp::from_nanos(at(60).as_nanos() - 1);
    assert!(dialler.permit(address(0), end).is_none());
    for _ in 0..MAX_DIALLED_OF_ADDRESS {
        assert!(dialler.permit(address(0), at(60)).is_some(), "those of a minute ago do not count");
    }
    assert!(dialler.permit(address(0), at(60)).is_none());
    let _ = dialler.permit(address(0), at(1_000));
    assert_eq!(lock(&dialler.counts).tried.len(), 1, "what is past is forgotten");
}

/// One host may have all addresses of a network; hosts in other networks still get connections.
///
/// proves: NFS4-7530-15-c
#[test]
fn addresses_of_one_network_have_connections_each_and_not_all_together() {
    let address = |last: u16| SocketAddr::new(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into(), 2049);
    let dialler = Dialler::default();
    let mut standing = Vec::new();
    for number in 0..MAX_DIALLED_OF_NETWORK {
        let address = address((number / MAX_DIALLED_OF_ADDRESS) as u16);
        standing.push(dialler.permit(address, Timestamp::ZERO).expect("each has its own"));
    }
    assert!(dialler.permit(address(99), Timestamp::ZERO).is_none(), "one past the limit of a network");
    let other = SocketAddr::new("2001:db8:1::1".parse().unwrap(), 2049);
    assert!(dialler.permit(other, Timestamp::ZERO).is_some());
    standing.pop();
    assert!(dialler.permit(address(99), Timestamp::ZERO).is_some());
}

/// However many calls there are for it, the server tries less and less often.
///
/// proves: NFS4-7530-15-c
#[test]
fn a_client_that_does_not_answer_leaves_attempts_for_others_at_its_address() {
    for manner in [Manner::Away, Manner::HangsUp, Manner::Silent, Manner::Lost] {
        let stage = Stage::new(manner);
        let (_, client) = stage.client("a", "tcp", HERE);
        stage.pass(1);
        let mut seconds = 0;
        while seconds < 60 {
            let (answer, took) = stage.timed(&client, vec![recall()]);
            assert!(answer.is_err());
            stage.pass(2);
            seconds += took + 2;
        }
        let dials = stage.called.dials();
        assert!((2..=MAX_DIALS_IN_MINUTE / 2).contains(&dials), "{manner:?}: {dials}");
        stage.called.set(Manner::Answers);
        let (_, neighbour) = stage.client("b", "tcp", HERE);
        stage.pass(1);
        assert!(stage.shared().can_call(&neighbour), "{manner:?}");
        // The client is there again.
        stage.pass(LONGEST_PAUSE.as_secs());
        assert!(stage.call(&client, vec![recall()]).is_ok(), "{manner:?}");
    }
}

/// proves: NFS4-7530-15-c
#[test]
fn who_waits_for_a_connection_that_is_not_made_makes_none_when_it_is_too_late() {
    let stage = Stage::new(Manner::Away);
    let (_, client) = stage.client("a", "tcp", HERE);
    stage.pass(FIRST_PAUSE.as_secs() + 1);
    stage.called.set(Manner::Lost);
    let before = stage.called.dials();
    let (answers, took) = stage.together(&client, 3);
    assert_eq!(answers, vec![Err(NoAnswer::NoPath); 3]);
    assert!(took <= ANSWER_TIME.as_secs() + 2, "{took} s");
    assert_eq!(stage.called.dials(), before + 1);
}

/// Connecting took so long that the client had no time for an answer: that is not the client's fault.
#[test]
fn a_connection_that_came_late_is_not_ended_for_that() {
    let stage = Stage::new(Manner::Away);
    let (_, client) = stage.client("a", "tcp", HERE);
    stage.pass(FIRST_PAUSE.as_secs() + 1);
    stage.called.set(Manner::Slow);
    let before = stage.called.dials();
    let (answers, _) = stage.together(&client, 1);
    assert_eq!(answers, [Err(NoAnswer::Lost)]);
    assert_eq!(stage.called.standing(), 1);
    assert!(stage.call(&client, vec![recall()]).is_ok());
    assert_eq!(stage.called.dials(), before + 1);
}

/// A client that changes its callback address again and again does not make the server call more often.
///
/// proves: NFS4-7530-15-c
#[test]
fn a_client_that_confirms_again_and_again_is_not_called_each_time() {
    let stage = Stage::new(Manner::Away);
    for number in 0..3 * MAX_DIALS_IN_MINUTE {
        stage.client(&format!("{number}"), "tcp", HERE);
        stage.pass(1);
    }
    assert_eq!(stage.called.dials(), MAX_DIALS_IN_MINUTE);
}
