//! Arbitrary capture files, and captures of arbitrary streams. Reading must end, with events or with an error.

use super::mint::Mint;
use rpcrdma_capture::{
    Options, capture, read_capture,
    show::{Json, Ladder, Style, Text},
};
use rpcrdma_env::{BoxFuture, Clock, Timestamp};
use rpcrdma_iwarp::{Direction, Tap};
use std::{io::sink, sync::Arc, time::Duration};

/// A clock that stands still.
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO
    }

    fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn unix_time(&self) -> Duration {
        Duration::from_secs(1_700_000_000)
    }
}

/// The input is a file.
pub(super) fn file(input: &[u8]) {
    let _ = read_capture(input, &mut Text::new(sink()));
    let _ = read_capture(input, &mut Json::new(sink()));
    let _ = read_capture(input, &mut Ladder::new(sink(), Style::Unicode));
}

/// The input is what both ends send: a byte that names the sender, two bytes for the length, then the data.
pub(super) fn streams(input: &[u8]) {
    let mut mint = Mint::new(input);
    let mut steps = Vec::new();
    while !mint.is_empty() {
        let from_initiator = mint.u8().is_multiple_of(2);
        let len = usize::from(mint.u16() % 4096);
        steps.push((from_initiator, mint.take(len)));
    }
    let file = file_of(&steps);
    let read = read_capture(&file[..], &mut Text::new(sink()));
    assert!(read.is_ok(), "a capture of ours is read: {read:?}");
    self::file(&file);
}

/// A capture of one connection. Each step says whether the initiator sends, and the bytes.
pub(super) fn file_of(steps: &[(bool, &[u8])]) -> Vec<u8> {
    let (tap, writer) = capture(Arc::new(Stopped), Options::default());
    let (initiator, responder) = ("192.0.2.1:40000", "192.0.2.2:20049");
    let mut stream = tap.connection(initiator.parse().unwrap(), responder.parse().unwrap(), true);
    for &(from_initiator, octets) in steps {
        stream.octets(if from_initiator { Direction::Sent } else { Direction::Received }, octets);
    }
    drop(stream);
    tap.finish();
    let mut file = Vec::new();
    writer.run(&mut file).expect("memory takes everything");
    file
}
