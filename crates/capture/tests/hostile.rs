//! Manipulated captures: whatever they contain, reading ends, with events or with an error.

mod common;

use common::{captured, read};
use pcap_file::{
    DataLink,
    pcapng::{PcapNgWriter, blocks::interface_description::InterfaceDescriptionBlock},
};
use proptest::prelude::*;
use rpcrdma_capture::{
    ReadError, read_capture,
    show::{Filtered, Json, Ladder, Statistics, Style, Text, Wanted},
};

/// Shows a file in all ways, and ignores the output.
fn show(file: &[u8]) {
    let _ = read_capture(file, &mut Text::new(std::io::sink()));
    let _ = read_capture(file, &mut Json::new(std::io::sink()));
    let _ = read_capture(file, &mut Ladder::new(std::io::sink(), Style::Unicode));
    let _ = read_capture(file, &mut Statistics::text(std::io::sink()));
    let _ = read_capture(file, &mut Statistics::json(std::io::sink()));
    let slow = Wanted { slower_than: Some(std::time::Duration::from_micros(150)), ..Wanted::default() };
    let _ = read_capture(file, &mut Filtered::new(slow, Text::new(std::io::sink())));
}

#[test]
fn what_is_no_capture_is_refused() {
    for file in [&b""[..], b"abc", b"%PDF-1.7 and more"] {
        assert!(matches!(read(file).1, Err(ReadError::UnknownFormat)), "{file:?}");
    }
    assert!(read(&[0x0A, 0x0D, 0x0D, 0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 1]).1.is_err());
}

/// If the writer was killed, a capture may end anywhere: everything before its end is read.
#[test]
fn a_file_may_end_anywhere() {
    let (file, _) = captured("192.0.2.1:40000", "192.0.2.2:20049", 1000);
    let whole = read(&file).0.len();
    let mut most = 0;
    for end in (200..file.len()).step_by(37) {
        let (events, summary) = read(&file[..end]);
        assert!(summary.is_ok(), "{end}: {summary:?}");
        most = most.max(events.len());
    }
    assert!(most + 2 >= whole, "{most} of {whole}");
}

/// As many interfaces as a file may name, and one more.
#[test]
fn interfaces_end_at_their_limit() {
    let mut file = PcapNgWriter::new(Vec::new()).unwrap();
    for _ in 0..4096 {
        file.write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0)).unwrap();
    }
    assert!(read(file.get_ref()).1.is_ok());
    file.write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0)).unwrap();
    assert!(matches!(read(file.get_ref()).1, Err(ReadError::Interfaces { max: 4096 })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changed_octets_are_survived(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        segment in prop_oneof![Just(64usize), Just(1448), Just(32 << 10)],
    ) {
        let (mut file, _) = captured("192.0.2.1:40000", "192.0.2.2:20049", segment);
        for (at, value) in changes {
            let at = at.index(file.len());
            file[at] = value;
        }
        show(&file);
    }

    #[test]
    fn cut_out_and_repeated_pieces_are_survived(
        pieces in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..600), 1..12),
    ) {
        let (mut file, _) = captured("[2001:db8::1]:4000", "[2001:db8::2]:20049", 500);
        for (at, len) in pieces {
            let at = at.index(file.len());
            let end = (at + len).min(file.len());
            if len % 2 == 0 {
                file.drain(at..end);
            } else {
                let piece = file[at..end].to_vec();
                file.splice(at..at, piece);
            }
            if file.is_empty() {
                break;
            }
        }
        show(&file);
    }

    #[test]
    fn any_octets_behind_a_right_beginning_are_survived(octets in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let (file, _) = captured("192.0.2.1:40000", "192.0.2.2:20049", 1448);
        show(&[&file[..140], &octets].concat());
        show(&[&[0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0][..], &octets].concat());
    }
}
