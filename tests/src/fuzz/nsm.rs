//! NSM: a decoded value survives its own encoding, and two names that stand for one host do so in either order. The
//! first byte chooses the type of the rest.

use super::{mint::Mint, nfs::survives};
use bytes::Bytes;
use rpcrdma_nfs::nsm::{Monitor, Notify, Stat, StatReply, State, Unmonitor, UnmonitorAll, is_same_host};

/// The checks of the rest of an input, by its first byte.
const KINDS: [fn(Bytes); 8] = [
    survives::<Stat>,
    survives::<StatReply>,
    survives::<Monitor>,
    survives::<Unmonitor>,
    survives::<UnmonitorAll>,
    survives::<State>,
    survives::<Notify>,
    names,
];

pub(super) fn types(input: &[u8]) {
    let mut mint = Mint::new(input);
    let kind = mint.below(KINDS.len());
    KINDS[kind](Bytes::copy_from_slice(mint.rest()));
}

/// Two names of hosts: the first byte says how long the first is.
fn names(octets: Bytes) {
    let mut mint = Mint::new(&octets);
    let len = usize::from(mint.u8());
    let (one, other) = (mint.take(len), mint.rest());
    assert_eq!(is_same_host(one, other), is_same_host(other, one));
    assert!(is_same_host(one, one));
    assert!(one.len() == other.len() || !is_same_host(one, other) || one.contains(&b'.') || other.contains(&b'.'));
}
