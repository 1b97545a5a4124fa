//! How connections come about, or fail.

use super::{
    Case, Given, Verdict, case,
    ledger::pattern,
    pair::{both, fails, incoming, join, listen, params},
};
use crate::{AcceptError, ConnectError, ConnectionParams, Receives, RefusedReason};
use bytes::Bytes;
use std::future::poll_fn;

pub(super) const CASES: &[Case] = &[
    case!(private_data_passes_in_both_directions),
    case!(private_data_past_the_limit_is_refused_here),
    case!(a_rejection_carries_private_data),
    case!(nobody_listening_is_a_refusal),
    case!(a_request_that_is_dropped_fails_the_connect),
    case!(an_address_is_listened_on_once),
    case!(ird_and_ord_are_the_lower_of_both_wishes),
    case!(requests_wait_for_their_turn),
];

fn with_data(private_data: Bytes) -> ConnectionParams {
    ConnectionParams { private_data, ..params(Vec::new(), 1) }
}

/// Whether `got` contains what was sent: some providers pad private data with zeros, and some put words of their own
/// before it.
fn carries(got: &Bytes, sent: &Bytes) -> bool {
    sent.is_empty() || got.windows(sent.len()).any(|window| window == &sent[..])
}

fn max_data(setup: &Given) -> usize {
    setup.a.capabilities().max_private_data.min(setup.b.capabilities().max_private_data)
}

async fn private_data_passes_in_both_directions(setup: Given) -> Verdict {
    let mut listener = listen(&setup).await;
    let to = listener.local_addr();
    let max = max_data(&setup);
    for length in [0, 1, 8, max].into_iter().filter(|length| *length <= max) {
        let (asked, answered) = (Bytes::from(pattern(1, length)), Bytes::from(pattern(2, length)));
        let accepting = async {
            let incoming = incoming(&mut *listener).await;
            assert!(carries(&incoming.info().private_data, &asked), "{length} bytes in the request");
            incoming.accept(with_data(answered.clone())).await.expect("it can be accepted")
        };
        let connecting = setup.a.connect(to, with_data(asked.clone()));
        let (a, b) = both(&setup.env, "a connection", connecting, accepting).await;
        let a = a.expect("the connection comes about");
        assert!(carries(&a.info().private_data, &answered), "{length} bytes in the answer");
        assert!(carries(&b.info().private_data, &asked), "{length} bytes kept from the request");
        assert_eq!(a.info().peer, to);
        assert_eq!(b.info().local, to);
        assert_eq!(a.info().local, b.info().peer);
    }
    Verdict::Passed
}

async fn private_data_past_the_limit_is_refused_here(setup: Given) -> Verdict {
    let mut listener = listen(&setup).await;
    let to = listener.local_addr();
    let data = |max: usize| with_data(Bytes::from(vec![1; max + 1]));
    let max = setup.a.capabilities().max_private_data;
    let error = fails(setup.a.connect(to, data(max)), &setup.env, "too much private data").await;
    assert!(matches!(error, ConnectError::Misuse(RefusedReason::Limit { max: m, .. }) if m == max), "{error:?}");
    let max = setup.b.capabilities().max_private_data;
    for reject in [false, true] {
        let accepting = async {
            let incoming = incoming(&mut *listener).await;
            if reject {
                return incoming.reject(data(max).private_data).await.expect_err("it is too long");
            }
            incoming.accept(data(max)).await.err().expect("it is too long")
        };
        let connecting = setup.a.connect(to, params(Vec::new(), 1));
        let (a, b) = both(&setup.env, "an answer with too much private data", connecting, accepting).await;
        assert!(a.is_err());
        assert!(matches!(b, AcceptError::Misuse(RefusedReason::Limit { max: m, .. }) if m == max), "{b:?}");
    }
    Verdict::Passed
}

async fn a_rejection_carries_private_data(setup: Given) -> Verdict {
    let mut listener = listen(&setup).await;
    let to = listener.local_addr();
    let max = max_data(&setup);
    for length in [0, 8, max].into_iter().filter(|length| *length <= max) {
        let why = Bytes::from(pattern(3, length));
        let rejecting = async { incoming(&mut *listener).await.reject(why.clone()).await };
        let connecting = setup.a.connect(to, params(Vec::new(), 1));
        let (a, b) = both(&setup.env, "a rejection", connecting, rejecting).await;
        b.expect("the rejection can be sent");
        match a {
            Err(ConnectError::Rejected { private_data, peer }) => {
                assert_eq!(peer, to);
                assert!(carries(&private_data, &why), "{length} bytes with the rejection");
            }
            Err(other) => panic!("{other:?} instead of a rejection"),
            Ok(_) => panic!("a rejected connection came about"),
        }
    }
    Verdict::Passed
}

async fn nobody_listening_is_a_refusal(setup: Given) -> Verdict {
    let listener = listen(&setup).await;
    let to = listener.local_addr();
    drop(listener);
    let error = fails(setup.a.connect(to, params(Vec::new(), 1)), &setup.env, "a refusal").await;
    assert!(matches!(error, ConnectError::Refused { peer } if peer == to), "{error:?}");
    Verdict::Passed
}

async fn a_request_that_is_dropped_fails_the_connect(setup: Given) -> Verdict {
    let mut listener = listen(&setup).await;
    let to = listener.local_addr();
    for read_it_first in [true, false] {
        let dropping = async {
            if read_it_first {
                drop(incoming(&mut *listener).await);
            } else {
                drop(poll_fn(|cx| listener.poll_accept(cx)).await.expect("a peer connects"));
            }
        };
        let connecting = setup.a.connect(to, params(Vec::new(), 1));
        let (a, ()) = both(&setup.env, "a connection without an answer", connecting, dropping).await;
        assert!(a.is_err());
    }
    Verdict::Passed
}

async fn an_address_is_listened_on_once(setup: Given) -> Verdict {
    let listener = listen(&setup).await;
    assert_ne!(listener.local_addr().port(), 0);
    assert!(setup.b.listen(listener.local_addr()).await.is_err());
    Verdict::Passed
}

async fn ird_and_ord_are_the_lower_of_both_wishes(setup: Given) -> Verdict {
    let mut listener = listen(&setup).await;
    let (of_a, of_b) = (setup.a.capabilities().clone(), setup.b.capabilities().clone());
    let wishes = [((1, 1), (1, 1)), ((4, 2), (1, 8)), ((3, 5), (4, 4)), ((1, 0), (1, 1)), ((2, 2), (1, 0))];
    for ((ird_a, ord_a), (ird_b, ord_b)) in wishes {
        let a =
            ConnectionParams { ird: of_a.max_ird.min(ird_a), ord: of_a.max_ord.min(ord_a), ..with_data(Bytes::new()) };
        let b =
            ConnectionParams { ird: of_b.max_ird.min(ird_b), ord: of_b.max_ord.min(ord_b), ..with_data(Bytes::new()) };
        let (to_b, to_a) = (a.ord.min(b.ird), b.ord.min(a.ird));
        let (wish_ird, wish_ord) = (a.ord, a.ird);
        let to = listener.local_addr();
        let accepting = async {
            let incoming = incoming(&mut *listener).await;
            let info = incoming.info();
            assert_eq!((info.ird, info.ord), (wish_ird, wish_ord), "the peer's wishes, seen from here");
            incoming.accept(b).await.expect("it can be accepted")
        };
        let (a, b) = both(&setup.env, "a connection", setup.a.connect(to, a), accepting).await;
        let a = a.expect("the connection comes about");
        assert_eq!((a.info().ord, b.info().ird), (to_b, to_b), "Reads from a to b");
        assert_eq!((a.info().ird, b.info().ord), (to_a, to_a), "Reads from b to a");
    }
    Verdict::Passed
}

async fn requests_wait_for_their_turn(setup: Given) -> Verdict {
    let mut listener = listen(&setup).await;
    let to = listener.local_addr();
    let connecting = || {
        let params = ConnectionParams { receives: Receives::Own(Vec::new()), ..params(Vec::new(), 1) };
        setup.a.connect(to, params)
    };
    let (first, second) = (connecting(), connecting());
    let accepting = async {
        // Both peers have asked before the listener answers one.
        let one = poll_fn(|cx| listener.poll_accept(cx)).await.expect("a peer connects");
        let two = poll_fn(|cx| listener.poll_accept(cx)).await.expect("another connects");
        assert_ne!(one.peer(), two.peer());
        let two = two.request().await.expect("it asks").accept(params(Vec::new(), 1)).await.expect("accepted");
        let one = one.request().await.expect("it asks").accept(params(Vec::new(), 1)).await.expect("accepted");
        (one, two)
    };
    let ((first, second), (one, two)) =
        both(&setup.env, "two connections", both(&setup.env, "both", first, second), accepting).await;
    let locals = [first.expect("connected").info().local, second.expect("connected").info().local];
    assert!(locals.contains(&one.info().peer) && locals.contains(&two.info().peer));
    // And the listener continues.
    let (third, _) = join(&setup, &mut *listener, params(Vec::new(), 1), params(Vec::new(), 1)).await;
    assert_eq!(third.info().peer, to);
    Verdict::Passed
}
