//! A small exchange, written and read back: as text, as JSON, as ladders, and through a network that loses packets.

mod common;

use common::{captured, exchange, read};
use pcap_file::{
    DataLink,
    pcap::{PcapHeader, PcapPacket, PcapWriter},
    pcapng::{Block, PcapNgReader},
};
use rpcrdma_capture::{
    Event, EventKind, read_capture,
    show::{Json, Ladder, Style, Text},
};
use std::time::Duration;

const HERE: &str = "192.0.2.1:40000";
const THERE: &str = "192.0.2.2:20049";
const LARGE: usize = 32 << 10;

fn text(file: &[u8]) -> String {
    let mut out = Vec::new();
    read_capture(file, &mut Text::new(&mut out)).unwrap();
    String::from_utf8(out).unwrap()
}

fn ladder(file: &[u8], style: Style) -> String {
    let mut out = Vec::new();
    read_capture(file, &mut Ladder::new(&mut out, style)).unwrap();
    String::from_utf8(out).unwrap()
}

/// The packets of a pcapng file with their times.
fn packets(file: &[u8]) -> Vec<(Duration, Vec<u8>)> {
    let mut reader = PcapNgReader::new(file).unwrap();
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap().0 {
            packets.push((packet.timestamp, packet.data.to_vec()));
        }
    }
    packets
}

/// A pcap file, with the link type's header in place of Ethernet's.
fn pcap(packets: &[(Duration, Vec<u8>)], datalink: DataLink, header: &[u8]) -> Vec<u8> {
    let mut file = PcapWriter::with_header(Vec::new(), PcapHeader { datalink, ..PcapHeader::default() }).unwrap();
    for (time, octets) in packets {
        let octets = [header, &octets[14..]].concat();
        file.write_packet(&PcapPacket::new(*time, octets.len() as u32, std::borrow::Cow::Owned(octets)).unwrap())
            .unwrap();
    }
    file.into_inner()
}

/// The events without their times.
fn kinds(events: &[Event]) -> Vec<EventKind> {
    let timeless = events.iter().map(|event| match event.kind.clone() {
        EventKind::Send { opcode, invalidate, octets, fpdus, message, .. } => {
            EventKind::Send { opcode, invalidate, octets, fpdus, message, since_call: None }
        }
        kind => kind,
    });
    timeless.collect()
}

#[test]
fn the_exchange_as_text() {
    insta::assert_snapshot!(text(&captured(HERE, THERE, LARGE).0));
}

#[test]
fn the_exchange_as_ladders() {
    insta::assert_snapshot!(ladder(&captured(HERE, THERE, LARGE).0, Style::Ascii));
}

#[test]
fn unicode_differs_in_signs_only() {
    let file = captured(HERE, THERE, LARGE).0;
    let unicode = ladder(&file, Style::Unicode);
    assert!(unicode.contains('▶') && unicode.contains('◀'));
    let columns = |text: &str| text.lines().map(|line| line.chars().count()).collect::<Vec<_>>();
    assert_eq!(columns(&unicode), columns(&ladder(&file, Style::Ascii)));
}

#[test]
fn json_has_an_object_for_each_message() {
    let mut out = Vec::new();
    let file = captured(HERE, THERE, LARGE).0;
    let summary = read_capture(&file[..], &mut Json::new(&mut out)).unwrap();
    let lines: Vec<serde_json::Value> =
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).collect::<Vec<_>>();
    assert_eq!(summary.messages, 20);
    assert_eq!(of("send").len() + of("write").len() + of("read_request").len() + of("read_response").len(), 19);
    let write = of("write")[0];
    assert_eq!((&write["handle"], &write["octets"], &write["fpdus"]), (&0xAAA1.into(), &8192.into(), &2.into()));
    assert_eq!(write["call"]["name"], "NFS 3 READ");
    assert_eq!(of("send")[2]["header"]["writes"][0][0]["length"], 8192);
    assert_eq!(of("summary")[0]["connections"], 1);
}

/// Small segments, IPv6, other link types and pcap give the same events.
#[test]
fn neither_segments_nor_addresses_nor_formats_matter() {
    let (file, written) = captured(HERE, THERE, LARGE);
    let expected = kinds(&read(&file).0);
    assert_eq!(written.octets, exchange().iter().map(|(_, octets)| octets.len() as u64).sum::<u64>());
    assert_eq!(written.packets, packets(&file).len() as u64);
    for (here, there, segment) in
        [(HERE, THERE, 64), (HERE, THERE, 1448), ("[2001:db8::1]:40000", "[2001:db8::2]:20049", 1440)]
    {
        let (file, _) = captured(here, there, segment);
        let (events, summary) = read(&file);
        assert_eq!(kinds(&events), expected, "{here} {segment}");
        assert_eq!(events[0].connection.initiator, here.parse().unwrap());
        assert_eq!(summary.unwrap().missing_bytes, 0);
    }
    let mut cooked = [0; 16];
    cooked[14] = 8;
    let mut cooked_2 = [0; 20];
    cooked_2[0] = 8;
    for (link, header) in [
        (DataLink::RAW, &[][..]),
        (DataLink::LINUX_SLL, &cooked[..]),
        (DataLink::LINUX_SLL2, &cooked_2[..]),
        (DataLink::NULL, &[2, 0, 0, 0][..]),
    ] {
        assert_eq!(kinds(&read(&pcap(&packets(&file), link, header)).0), expected, "{link:?}");
    }
}

/// Packets in another order, repeated packets, and packets that repeat bytes of their neighbours give the same events.
#[test]
fn a_network_that_repeats_and_reorders_does_not_matter() {
    let (file, _) = captured(HERE, THERE, 100);
    let expected = kinds(&read(&file).0);
    let mut shuffled = packets(&file);
    // After the handshake and before the end, swaps neighbours of the same direction.
    let end = shuffled.len() - 3;
    let middle = &mut shuffled[3..end];
    let from = |packet: &(Duration, Vec<u8>)| packet.1[26..30].to_vec();
    for at in (0..middle.len() - 1).step_by(3) {
        if from(&middle[at]) == from(&middle[at + 1]) {
            middle.swap(at, at + 1);
        }
    }
    let mut twice = Vec::new();
    for (number, packet) in shuffled.into_iter().enumerate() {
        twice.push(packet.clone());
        if number % 4 == 0 {
            twice.push(packet);
        }
    }
    let file = pcap(&twice, DataLink::RAW, &[]);
    let (events, summary) = read(&file);
    assert_eq!(summary.unwrap().missing_bytes, 0);
    let messages = |kinds: Vec<EventKind>| -> Vec<String> {
        let mut all: Vec<_> = kinds.iter().map(|kind| format!("{kind:?}")).collect();
        all.sort();
        all
    };
    assert_eq!(messages(kinds(&events)), messages(expected));
}

/// Wherever a capture begins, every complete call in it is read.
#[test]
fn a_lost_beginning_is_got_over() {
    let (file, _) = captured(HERE, THERE, 1000);
    let all = packets(&file);
    for begin in 1..all.len() - 4 {
        let (events, summary) = read(&pcap(&all[begin..], DataLink::RAW, &[]));
        summary.unwrap();
        let last_call = events.iter().any(|event| match &event.kind {
            EventKind::Send { .. } => event.call.is_some_and(|call| call.xid == 0x107),
            _ => false,
        });
        assert!(last_call, "from packet {begin}: {events:#?}");
        assert!(events.iter().all(|event| event.connection.responder == THERE.parse().unwrap()));
    }
}

/// A missing packet loses only its own messages, and is reported.
#[test]
fn a_missing_packet_is_a_gap() {
    let (file, _) = captured(HERE, THERE, 1000);
    let all = packets(&file);
    let whole = read(&file).0.len();
    for missing in 5..all.len() - 4 {
        let mut some = all.clone();
        let lost = some.remove(missing);
        let (events, summary) = read(&pcap(&some, DataLink::RAW, &[]));
        let summary = summary.unwrap();
        // Ethernet, IPv4 and TCP without options.
        assert_eq!(summary.missing_bytes, lost.1.len() as u64 - 54, "packet {missing}");
        assert!(events.iter().any(|event| matches!(event.kind, EventKind::Gap { .. })));
        assert!(events.len() + 6 > whole, "packet {missing}: {} of {whole}", events.len());
    }
}

/// A port that is used again is another connection.
#[test]
fn a_port_is_used_again() {
    let (file, _) = captured(HERE, THERE, LARGE);
    let first = packets(&file);
    let mut second = first.clone();
    for (_, octets) in &mut second {
        // Ethernet and IPv4 take 34 bytes; then ports, the sequence number, the acknowledgement number.
        for at in [38, 42] {
            let number = u32::from_be_bytes(octets[at..at + 4].try_into().unwrap());
            octets[at..at + 4].copy_from_slice(&number.wrapping_add(0x7000_0000).to_be_bytes());
        }
    }
    for end in [first.len(), first.len() - 3] {
        let both = [&first[..end], &second[..]].concat();
        let (events, summary) = read(&pcap(&both, DataLink::RAW, &[]));
        assert_eq!(summary.unwrap().connections, 2);
        assert_eq!(events.iter().filter(|event| event.connection.number == 2).count(), read(&file).0.len());
    }
}
