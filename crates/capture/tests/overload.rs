//! A writer that cannot keep up, and a file that cannot be written: connections go on, and the file says what is
//! missing.

mod common;

use common::{exchange, read};
use pcap_file::pcapng::{Block, PcapNgReader};
use rpcrdma_capture::{EventKind, Options, WriteError, capture};
use rpcrdma_env::tokio_env;
use rpcrdma_iwarp::{Direction, Tap};
use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

/// All comments of a capture.
fn comments(file: &[u8]) -> String {
    let mut reader = PcapNgReader::new(file).unwrap();
    let mut found = String::new();
    while let Some(block) = reader.next_block() {
        match block.unwrap().0 {
            Block::EnhancedPacket(packet) => found += &format!("{:?}\n", packet.options),
            Block::InterfaceStatistics(statistics) => found += &format!("{:?}\n", statistics.options),
            _ => {}
        }
    }
    found
}

/// Room for everything in the exchange but the segments of its RDMA Write.
const PENDING_BYTES: usize = 6000;

/// A file that a test can read while it is written.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_is_left_out_is_told() {
    let mut options = Options::default();
    options.pending_bytes = PENDING_BYTES;
    let (tap, writer) = capture(tokio_env().unwrap().clock, options);
    let (here, there) = ("[::1]:1000".parse().unwrap(), "[::1]:20049".parse().unwrap());
    let mut stream = tap.connection(here, there, true);
    let mut tell = |steps: &[(bool, Vec<u8>)]| {
        for (from_initiator, octets) in steps {
            stream.octets(if *from_initiator { Direction::Sent } else { Direction::Received }, octets);
        }
    };
    let steps = exchange();
    // The writer does not run yet: the segments of a Write do not fit.
    tell(&steps[..10]);
    let shared = Shared::default();
    let file = shared.clone();
    let running = std::thread::spawn(move || writer.run(file).unwrap());
    // The file is flushed when nothing waits.
    while shared.0.lock().unwrap().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    tell(&steps[10..]);
    drop(stream);
    tap.finish();
    let written = running.join().unwrap();
    let file = std::mem::take(&mut *shared.0.lock().unwrap());
    let total: u64 = exchange().iter().map(|(_, octets)| octets.len() as u64).sum();
    assert!(written.dropped_bytes > 8192, "{written:?}");
    assert_eq!(written.octets + written.dropped_bytes, total);
    let told = comments(&file);
    assert!(
        told.contains(
            "bytes before these are not in this file: the disk was too slow, and no more than 6000 bytes may wait"
        ),
        "{told}"
    );
    assert!(
        told.contains(&format!("{} bytes and 0 connections are not in this file", written.dropped_bytes)),
        "{told}"
    );
    let (events, summary) = read(&file);
    assert_eq!(summary.unwrap().missing_bytes, written.dropped_bytes);
    assert!(events.iter().any(|event| matches!(event.kind, EventKind::Gap { .. })));
    assert!(matches!(events.last().unwrap().kind, EventKind::Closed { reset: false }));
}

/// A file that accepts no bytes.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_capture_and_nothing_else() {
    let (tap, writer) = capture(tokio_env().unwrap().clock, Options::default());
    let (here, there) = ("127.0.0.1:1000".parse().unwrap(), "127.0.0.1:20049".parse().unwrap());
    let mut stream = tap.connection(here, there, true);
    stream.octets(Direction::Sent, &vec![1; 1 << 20]);
    let Err(WriteError::Io(error)) = writer.run(Full) else { panic!("the disk is full") };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    stream.octets(Direction::Sent, &[2; 1000]);
    drop(stream);
    drop(tap.connection(there, here, false));
}
