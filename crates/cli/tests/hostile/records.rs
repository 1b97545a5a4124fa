//! Record marking on the TCP ports: hostile lengths and fragments.

use crate::{
    peer::{dial, rest},
    rpc::{self, Status, status},
    stage::Stage,
};
use std::{io::Write, net::Shutdown};

/// The longest record that the server takes, in bytes, and the most fragments in one: its named limits.
const MAX_RECORD_BYTES: u32 = (1 << 20) + (64 << 10);
const MAX_FRAGMENTS: usize = 1024;
const LAST: u32 = 1 << 31;

fn fragment(head: u32, octets: &[u8]) -> Vec<u8> {
    [&head.to_be_bytes()[..], octets].concat()
}

#[test]
fn records_beyond_a_limit_end_their_connection() {
    let mut stage = Stage::new(&["--tcp", "127.0.0.1:0"]);
    let attacks = [
        ("fragments without bytes", fragment(0, &[]).repeat(MAX_FRAGMENTS + 1)),
        ("fragments of a byte", fragment(1, &[0]).repeat(MAX_FRAGMENTS + 1)),
        ("a fragment of 2^31-1 bytes", fragment(LAST - 1, &[0; 64])),
        ("a last fragment of 2^31-1 bytes", fragment(u32::MAX, &[0; 64])),
        ("one byte too many", fragment(LAST | (MAX_RECORD_BYTES + 1), &[])),
        ("one byte too many in two", [fragment(8, &[0; 8]), fragment(LAST | (MAX_RECORD_BYTES - 7), &[])].concat()),
        ("text", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("ones", vec![0xFF; 100_000]),
    ];
    for address in [stage.server.mount.clone(), stage.server.tcp.clone().unwrap()] {
        for (what, octets) in &attacks {
            let mut stream = dial(&address);
            // The server may close before everything is sent.
            let _ = stream.write_all(octets);
            assert_eq!(rest(&mut stream), b"", "{what}");
            stage.the_open_connection_works();
        }
    }
    stage.finish();
}

#[test]
fn records_at_the_limits_are_served() {
    let stage = Stage::new(&["--tcp", "127.0.0.1:0"]);
    let mut stream = dial(stage.server.tcp.as_deref().unwrap());
    let null = rpc::null(3);
    // One byte a fragment, the rest of the fragments empty.
    let mut octets: Vec<u8> = null.iter().flat_map(|octet| fragment(1, &[*octet])).collect();
    octets.extend(fragment(0, &[]).repeat(MAX_FRAGMENTS - null.len() - 1));
    octets.extend(fragment(LAST, &[]));
    stream.write_all(&octets).unwrap();
    assert_eq!(status(&rpc::read_record(&mut stream).unwrap()), Status::Success(Vec::new()));
    let mut longest = null;
    longest.resize(MAX_RECORD_BYTES as usize, 0);
    rpc::send_record(&mut stream, &longest);
    assert_eq!(status(&rpc::read_record(&mut stream).unwrap()), Status::GarbageArgs);
    // An empty record is no call.
    rpc::send_record(&mut stream, &[]);
    rpc::send_record(&mut stream, &rpc::null(4));
    assert_eq!(rpc::read_record(&mut stream).unwrap()[..4], 4_u32.to_be_bytes());
    // Hundreds of calls at once are all answered.
    let burst: Vec<u8> =
        (0..500).flat_map(|xid| fragment(LAST | 40, &rpc::call_as(xid, rpc::NFS, 3, 0, 0, &[]).0)).collect();
    stream.write_all(&burst).unwrap();
    for xid in 0..500_u32 {
        assert_eq!(rpc::read_record(&mut stream).unwrap()[..4], xid.to_be_bytes());
    }
    drop(stream);
    stage.finish();
}

/// The server frees the memory of half a record with its connection.
#[test]
fn half_records_hold_nothing_after_their_connection() {
    let mut stage = Stage::new(&["--tcp", "127.0.0.1:0"]);
    let address = stage.server.tcp.clone().unwrap();
    for round in 0..4 {
        let mut streams = Vec::new();
        for number in 0..40_u32 {
            let mut stream = dial(&address);
            match number % 4 {
                0 => stream.write_all(&[0x80, 0]).unwrap(),
                1 => stream.write_all(&fragment(LAST | MAX_RECORD_BYTES, &[0; 9])).unwrap(),
                2 => stream.write_all(&fragment(600_000, &vec![0; 600_000])).unwrap(),
                _ => stream.write_all(&fragment(LAST | 100, &[0; 50])).unwrap(),
            }
            streams.push(stream);
        }
        stage.the_open_connection_works();
        for mut stream in streams {
            if round % 2 == 0 {
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!(rest(&mut stream), b"");
            }
        }
    }
    stage.finish();
}
