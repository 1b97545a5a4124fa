//! Captures of RPC over plain TCP, as other programs make them: MOUNT, and NFS without RDMA.

mod common;

use common::{
    records::{End4, File, MOUNTD, NFSD, Stream, record},
    words,
};
use rpcrdma_capture::{
    EventKind, Summary,
    event::{Carries, End, Outcome, Rpc, Status},
    read_capture,
    show::{Json, Ladder, Style, Text},
};
use rpcrdma_nfs::{mount, v3};

/// A call with `more` bytes of arguments: a path or a handle, if there are any.
fn call(xid: u32, program: u32, version: u32, procedure: u32, more: usize) -> Vec<u8> {
    let mut body = words(&[xid, 0, 2, program, version, procedure, 0, 0, 0, 0]);
    if let Some(octets) = more.checked_sub(4) {
        body.extend(words(&[octets as u32]));
        body.resize(body.len() + octets, b'/');
    }
    record(&body)
}

fn reply(xid: u32, results: &[u32]) -> Vec<u8> {
    record(&words(&[&[xid, 1, 0, 0, 0, 0][..], results].concat()))
}

/// MNT granted and refused, UMNT of an old version, then NFS over TCP.
fn exchange() -> Vec<u8> {
    let mut file = File::new();
    let mut mountd = Stream::begun(MOUNTD, &mut file);
    mountd.asks(&mut file, &call(1, mount::PROGRAM, 3, 1, 8));
    mountd.answers(&mut file, &reply(1, &[0, 4, 0xFEED, 0]));
    mountd.asks(&mut file, &call(2, mount::PROGRAM, 3, 1, 8));
    mountd.answers(&mut file, &reply(2, &[13]));
    let both = [call(3, mount::PROGRAM, 1, 3, 8), call(4, mount::PROGRAM, 3, 5, 0)].concat();
    mountd.asks(&mut file, &both[..50]);
    mountd.asks(&mut file, &both[50..]);
    mountd.answers(&mut file, &reply(4, &[0]));
    let mut nfsd = Stream::unseen(NFSD);
    nfsd.asks(&mut file, &call(7, v3::PROGRAM, 3, 1, 36));
    nfsd.answers(&mut file, &reply(7, &[70]));
    file.octets
}

fn summary_of(file: &[u8]) -> (Vec<rpcrdma_capture::Event>, Summary) {
    let (events, summary) = common::read(file);
    (events, summary.unwrap())
}

#[test]
fn calls_of_mount_and_nfs_over_tcp_are_named() {
    let (events, summary) = summary_of(&exchange());
    assert_eq!((summary.connections, summary.record_connections, summary.other_connections), (0, 2, 0));
    assert_eq!((summary.messages, summary.records), (0, 9));
    assert!(events.iter().all(|event| event.connection.carries == Carries::Records));
    let outcomes: Vec<_> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Record { rpc: Some(Rpc::Reply { xid, outcome }), since_call: Some(_), .. } => {
                Some((xid, outcome))
            }
            _ => None,
        })
        .collect();
    let executed = |status| Outcome::Executed(Some(status));
    assert_eq!(
        outcomes,
        [
            (1, executed(Status::Mount(mount::Status::OK))),
            (2, executed(Status::Mount(mount::Status::ACCES))),
            (4, Outcome::Executed(None)),
            (7, executed(Status::Nfs3(v3::Status::STALE))),
        ]
    );
    // If the beginning was not captured, the reader still finds out which end is the client.
    let last = events.last().unwrap();
    assert_eq!((last.from, last.connection.responder.port()), (End::Responder, NFSD.1));
    let name = last.call.and_then(|tag| tag.name).unwrap();
    assert_eq!(name.to_string(), "NFS 3 GETATTR");
}

/// The server calls its client over the client's own connection, between the client's calls, and the client answers.
#[test]
fn calls_of_the_server_are_found_in_the_reverse_direction() {
    let mut file = File::new();
    let mut nfsd = Stream::begun(NFSD, &mut file);
    // A COMPOUND of minor version 2 without operations makes it a connection of NFS.
    let compound = [&words(&[1, 0, 2, 100_003, 4, 1, 0, 0, 0, 0])[..], &words(&[0, 2, 0])].concat();
    nfsd.asks(&mut file, &record(&compound));
    nfsd.answers(&mut file, &reply(1, &[0, 0, 0]));
    // CB_COMPOUND: minor version 2, CB_SEQUENCE and nothing else.
    let session = [0x0A1B_2C3D, 1, 2, 3];
    let called =
        [&[9, 0, 2, 0x4000_0000, 1, 1, 0, 0, 0, 0][..], &[0, 2, 0, 1, 11], &session, &[4, 3, 3, 0, 0]].concat();
    nfsd.answers(&mut file, &record(&words(&called)));
    nfsd.asks(&mut file, &reply(9, &[&[0, 0, 1, 11, 0][..], &session, &[4, 3, 7, 7]].concat()));
    let (events, _) = summary_of(&file.octets);
    let from: Vec<_> = events.iter().map(|event| event.from).collect();
    assert_eq!(from, [End::Initiator, End::Responder, End::Responder, End::Initiator]);
    let mut text = Vec::new();
    read_capture(&file.octets[..], &mut Text::new(&mut text)).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("CB_COMPOUND minor 2 CB_SEQUENCE session 0a1b2c3d..00000003 slot 3 seq 4"), "{text}");
    assert!(text.contains("Reply NFS4_OK CB_SEQUENCE"), "{text}");
}

#[test]
fn every_view_shows_them() {
    let file = exchange();
    let mut text = Vec::new();
    read_capture(&file[..], &mut Text::new(&mut text)).unwrap();
    let text = String::from_utf8(text).unwrap();
    for line in [
        "    0.001000 #1 10.0.0.1:863 > 10.0.0.2:20048  Record, 48 bytes: Call MOUNT 3 MNT \"////\"  [call 1 MOUNT 3 MNT]",
        "    0.002000 #1 10.0.0.2:20048 > 10.0.0.1:863  Record, 40 bytes: Reply OK 0000feed  [call 1 MOUNT 3 MNT]",
        "    0.006000 #1 10.0.0.1:863 > 10.0.0.2:20048  Record, 48 bytes: Call MOUNT 1 UMNT \"////\"  [call 3 MOUNT 1 UMNT]",
        "    0.008000 #2 10.0.0.1:863 > 10.0.0.2:2049  Record, 76 bytes: Call NFS 3 GETATTR 2f2f..2f2f2f2f  [call 1 NFS 3 GETATTR]",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(text.contains("Reply MOUNT status 13"), "{text}");
    assert!(
        text.ends_with("0 connections with iWARP, 2 with RPC in records, 0 without, 0 messages, 9 records\n"),
        "{text}"
    );

    let mut ladder = Vec::new();
    read_capture(&file[..], &mut Ladder::new(&mut ladder, Style::Ascii)).unwrap();
    let ladder = String::from_utf8(ladder).unwrap();
    assert!(ladder.contains("call 1: MOUNT 3 MNT, xid 0x00000001, answered after 1.000 ms: OK"), "{ladder}");
    assert!(ladder.contains("call 3: MOUNT 1 UMNT, xid 0x00000003, no answer seen"), "{ladder}");
    assert!(
        ladder.lines().any(|line| line.contains(" Call ") && line.contains("Call MOUNT 3 MNT \"////\" --")),
        "{ladder}"
    );

    let mut json = Vec::new();
    read_capture(&file[..], &mut Json::new(&mut json)).unwrap();
    let lines: Vec<serde_json::Value> =
        String::from_utf8(json).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["type"], &lines[0]["call"]["name"]), (&"record".into(), &"MOUNT 3 MNT".into()));
    assert_eq!((&lines[1]["rpc"]["mount_status"], &lines[1]["fragments"]), (&0.into(), &1.into()));
    assert_eq!(lines.last().unwrap()["record_connections"], 2);
}

/// A client's questions to a portmapper, in each version, and the answers.
#[test]
fn questions_to_a_portmapper_are_told() {
    const PORTMAPPER: End4 = ([10, 0, 0, 2], 111);
    let text = |text: &str| {
        let mut octets = [&words(&[text.len() as u32])[..], text.as_bytes()].concat();
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    };
    let registration = [&words(&[100_003, 3])[..], &text("rdma"), &text(""), &text("")].concat();
    let address = text("10.0.0.2.78.81");
    let entry = [&words(&[1, 100_003, 3])[..], &text("tcp"), &address, &text("me")].concat();
    let listed = [&words(&[1])[..], &address, &text("tcp"), &words(&[3]), &text("inet"), &text("tcp"), &words(&[0])];
    let remote = words(&[100_003, 3, 0, 0]);
    let of_socket = words(&[16, 4, 0x0200_0801]);
    /// Version, procedure, arguments, results; the expected texts of the call and of the reply.
    type Asked<'a> = (u32, u32, &'a [u8], Vec<u8>, &'a str, &'a str);
    let asked: [Asked<'_>; 14] = [
        (2, 3, &words(&[100_005, 3, 6, 0]), words(&[20_048]), "GETPORT program 100005", "port 20048"),
        (2, 1, &words(&[100_005, 3, 6, 9]), words(&[0]), "rpcbind 2 SET program 100005", "refused"),
        (2, 4, &[], words(&[1, 100_003, 3, 6, 2049, 0]), "rpcbind 2 DUMP", "entries 1"),
        (2, 5, &remote, words(&[2049, 0]), "CALLIT program 100003", "port 2049"),
        (4, 3, &registration, address.clone(), "GETADDR program 100003", "10.0.0.2.78.81"),
        (4, 2, &registration, words(&[1]), "rpcbind 4 UNSET program 100003", "done"),
        (3, 4, &[], [&entry[..], &entry, &words(&[0])].concat(), "rpcbind 3 DUMP", "entries 2"),
        (4, 5, &remote, [&address[..], &words(&[0])].concat(), "BCAST program 100003", "10.0.0.2.78.81"),
        (4, 6, &[], words(&[1_800_000_000]), "GETTIME", "seconds 1800000000"),
        (4, 7, &address, of_socket.clone(), "UADDR2TADDR", "02000801"),
        (3, 8, &of_socket, address.clone(), "TADDR2UADDR", "10.0.0.2.78.81"),
        (4, 9, &registration, text(""), "GETVERSADDR program 100003", "GETVERSADDR"),
        (4, 11, &registration, listed.concat(), "GETADDRLIST program 100003", "entries 1"),
        (4, 12, &[], words(&[0; 57]), "GETSTAT", "GETSTAT"),
    ];
    let mut file = File::new();
    let mut portmapper = Stream::begun(PORTMAPPER, &mut file);
    for (xid, (version, procedure, arguments, results, ..)) in (1..).zip(&asked) {
        let head = words(&[xid, 0, 2, 100_000, *version, *procedure, 0, 0, 0, 0]);
        portmapper.asks(&mut file, &record(&[&head, *arguments].concat()));
        portmapper.answers(&mut file, &record(&[&words(&[xid, 1, 0, 0, 0, 0])[..], results].concat()));
    }
    let mut told = Vec::new();
    read_capture(&file.octets[..], &mut Text::new(&mut told)).unwrap();
    let told = String::from_utf8(told).unwrap().replace('=', " ");
    for (at, (.., call, reply)) in asked.iter().enumerate() {
        let lines: Vec<_> = told.lines().filter(|line| line.contains(&format!("[call {} ", at + 1))).collect();
        assert!(lines.len() == 2 && lines[0].contains(call) && lines[1].contains(reply), "{call}: {lines:#?}");
    }
    assert!(!told.contains("does not decode"), "{told}");
}

/// Bytes are lost in the middle of a large WRITE: later calls are read.
#[test]
fn what_comes_after_a_gap_is_read() {
    let mut file = File::new();
    let mut nfsd = Stream::begun(NFSD, &mut file);
    let write = call(1, v3::PROGRAM, 3, 7, 6000);
    nfsd.asks(&mut file, &write[..1400]);
    nfsd.lost(1400);
    nfsd.asks(&mut file, &write[2800..]);
    nfsd.asks(&mut file, &call(2, v3::PROGRAM, 3, 21, 0));
    nfsd.answers(&mut file, &reply(2, &[0]));
    let (events, summary) = summary_of(&file.octets);
    assert_eq!((summary.missing_bytes, summary.records), (1400, 2));
    let calls = events.iter().filter(|event| matches!(event.kind, EventKind::Record { rpc: Some(Rpc::Call(_)), .. }));
    assert_eq!(calls.filter_map(|event| event.call).map(|tag| tag.xid).collect::<Vec<_>>(), [2]);
}

/// A stream of another protocol shows no records, and an iWARP connection shows none either.
#[test]
fn what_carries_no_records_shows_none() {
    let mut file = File::new();
    let mut other = Stream::begun(([10, 0, 0, 2], 22), &mut file);
    other.asks(&mut file, b"SSH-2.0-client\r\n");
    other.answers(&mut file, b"SSH-2.0-server\r\n");
    let (events, summary) = summary_of(&file.octets);
    assert!(events.is_empty());
    assert_eq!((summary.other_connections, summary.record_connections), (1, 0));
    let (iwarp, _) = common::captured("10.0.0.1:700", "10.0.0.2:20049", 1448);
    let (events, summary) = summary_of(&iwarp);
    assert!(events.iter().all(|event| !matches!(event.kind, EventKind::Record { .. })));
    assert_eq!((summary.connections, summary.record_connections, summary.records), (1, 0, 0));
}
