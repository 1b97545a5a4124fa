//! RPCSEC_GSS in captures: contexts, services and numbers; signed data are read, and of sealed data only the length is
//! shown.

mod common;

use common::{
    records::{File, NFSD, Stream, record},
    words,
};
use proptest::prelude::*;
use rpcrdma_capture::{
    read_capture,
    show::{Json, Ladder, Style, Text},
};

/// The handle of the context.
const CONTEXT: [u8; 8] = [0x0A, 0x1B, 0, 0, 0, 0x2C, 0x3D, 0x4E];
/// Bytes of a verifier, as Kerberos makes them.
const VERIFIER_BYTES: usize = 28;
/// Services.
const KRB5: u32 = 1;
const KRB5I: u32 = 2;
const KRB5P: u32 = 3;
/// Procedures of RPCSEC_GSS.
const DATA: u32 = 0;
const INIT: u32 = 1;
const DESTROY: u32 = 3;

fn opaque(octets: &[u8]) -> Vec<u8> {
    let mut out = [&words(&[octets.len() as u32])[..], octets].concat();
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// A call of version 3 in the context, with this body.
fn call(xid: u32, procedure: u32, [gss, service]: [u32; 2], body: &[u8]) -> Vec<u8> {
    let context = if gss == INIT { &[][..] } else { &CONTEXT };
    let credential = [words(&[1, gss, xid, service]), opaque(context)].concat();
    let verifier = if gss == INIT { words(&[0, 0]) } else { [words(&[6]), opaque(&[7; VERIFIER_BYTES])].concat() };
    let head = [words(&[xid, 0, 2, 100_003, 3, procedure, 6]), opaque(&credential), verifier].concat();
    record(&[&head, body].concat())
}

fn reply(xid: u32, body: &[u8]) -> Vec<u8> {
    let head = [words(&[xid, 1, 0, 6]), opaque(&[7; VERIFIER_BYTES]), words(&[0])].concat();
    record(&[&head, body].concat())
}

/// Arguments or results as a service protects them.
fn protected(sequence: u32, service: u32, body: &[u8]) -> Vec<u8> {
    match service {
        KRB5 => body.to_vec(),
        KRB5I => [opaque(&[&words(&[sequence])[..], body].concat()), opaque(&[9; VERIFIER_BYTES])].concat(),
        _ => opaque(&vec![0xEE; body.len() + 60]),
    }
}

/// A context made and one refused; READ in each service; an unknown service; the end.
fn exchange() -> Vec<u8> {
    let mut file = File::new();
    let mut nfsd = Stream::begun(NFSD, &mut file);
    let mut both = |call: &[u8], reply: &[u8]| {
        nfsd.asks(&mut file, call);
        nfsd.answers(&mut file, reply);
    };
    let token = opaque(&[0x60; 1201]);
    let made = [opaque(&CONTEXT), words(&[0, 0, 128]), opaque(&[0x60; 156])].concat();
    both(&call(1, 0, [INIT, KRB5], &token), &reply(1, &made));
    let refused = [opaque(&[]), words(&[0x000D_0000, 37, 0]), opaque(&[])].concat();
    let plain = [words(&[2, 1, 0, 0, 0, 0]), refused].concat();
    both(&call(2, 0, [INIT, KRB5], &token), &record(&plain));
    let read = [opaque(&[0x55; 16]), words(&[0, 4096, 5])].concat();
    let results = [words(&[0, 0, 5, 1]), opaque(b"hello")].concat();
    for (xid, service) in [(3, KRB5), (4, KRB5I), (5, KRB5P)] {
        let asked = call(xid, 6, [DATA, service], &protected(xid, service, &read));
        both(&asked, &reply(xid, &protected(xid, service, &results)));
    }
    // The sequence number inside differs from the credential's.
    let changed = call(6, 6, [DATA, KRB5I], &protected(77, KRB5I, &read));
    both(&changed, &record(&words(&[6, 1, 1, 1, 13])));
    both(&call(7, 6, [DATA, KRB5P], &protected(7, KRB5P, &read)), &record(&words(&[7, 1, 1, 1, 14])));
    both(&call(8, 0, [DESTROY, KRB5I], &[]), &reply(8, &[]));
    // An unknown version of RPCSEC_GSS.
    let other = [words(&[9, 0, 2, 100_003, 3, 1, 6]), opaque(&words(&[3, 0, 1, 1, 0])), words(&[0, 0])].concat();
    both(&record(&other), &record(&words(&[9, 1, 1, 1, 2])));
    file.octets
}

fn text_of(file: &[u8]) -> String {
    let mut text = Vec::new();
    read_capture(file, &mut Text::new(&mut text)).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn contexts_services_and_numbers_are_told() {
    insta::assert_snapshot!("the_exchange_as_text", text_of(&exchange()));
}

#[test]
fn the_ladder_shows_them() {
    let mut ladder = Vec::new();
    read_capture(&exchange()[..], &mut Ladder::new(&mut ladder, Style::Ascii)).unwrap();
    insta::assert_snapshot!("the_exchange_as_ladders", String::from_utf8(ladder).unwrap());
}

#[test]
fn programs_are_told_whole_handles() {
    let mut json = Vec::new();
    read_capture(&exchange()[..], &mut Json::new(&mut json)).unwrap();
    let json = String::from_utf8(json).unwrap();
    let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let gss = |line: usize| &lines[line]["content"]["gss"];
    assert_eq!((&gss(0)["procedure"], &gss(0)["token_octets"]), (&"INIT".into(), &1201.into()));
    assert_eq!((&gss(1)["context"], &gss(1)["window"]), (&"0a1b0000002c3d4e".into(), &128.into()));
    assert_eq!((&gss(3)["major"], &gss(3)["minor"]), (&0x000D_0000.into(), &37.into()));
    assert_eq!((&gss(6)["service"], &gss(6)["sequence"]), (&"krb5i".into(), &4.into()));
    assert_eq!(lines[6]["content"]["operations"][0]["count"], 5, "what is signed is read");
    assert_eq!((&lines[7]["rpc"]["nfs_status"], &gss(7)["signed_sequence"]), (&0.into(), &4.into()));
    assert_eq!((&gss(8)["sealed_octets"], &lines[8]["content"]["operations"]), (&92.into(), &serde_json::json!([])));
    assert_eq!(lines[9]["rpc"]["nfs_status"], serde_json::Value::Null, "a sealed status is nobody's to know");
    assert_eq!(lines[11]["rpc"]["rejection"], "RPCSEC_GSS_CREDPROBLEM");
    assert_eq!(lines[13]["rpc"]["rejection"], "RPCSEC_GSS_CTXPROBLEM");
}

/// READ of more bytes than are kept of a record: the kept bytes are read, signed or not.
#[test]
fn long_results_are_read_as_far_as_they_are_kept() {
    const LONG: usize = 200_001;
    let mut file = File::new();
    let mut nfsd = Stream::begun(NFSD, &mut file);
    let read = [opaque(&[0x55; 16]), words(&[0, 0, LONG as u32])].concat();
    let results = [words(&[0, 0, LONG as u32, 1]), opaque(&vec![7; LONG])].concat();
    nfsd.asks(&mut file, &call(1, 6, [DATA, KRB5I], &protected(1, KRB5I, &read)));
    for part in reply(1, &protected(1, KRB5I, &results)).chunks(50_000) {
        nfsd.answers(&mut file, part);
    }
    let text = text_of(&file.octets);
    assert!(text.contains("Reply NFS3_OK [DATA krb5i, sequence 1, verifier 28] 200001"), "{text}");
    assert!(!text.contains("not read") && !text.contains("decode"), "{text}");
}

proptest! {
    /// Reading ends, whatever lengths and words the capture has.
    #[test]
    fn changed_words_are_survived(at in 0_usize..3500, word in any::<u32>(), small in any::<bool>()) {
        let mut file = exchange();
        let at = at.min(file.len() - 4);
        file[at..at + 4].copy_from_slice(&if small { word % 64 } else { word }.to_be_bytes());
        let _ = read_capture(&file[..], &mut Text::new(std::io::sink()));
        let _ = read_capture(&file[..], &mut Json::new(std::io::sink()));
        let _ = read_capture(&file[..], &mut Ladder::new(std::io::sink(), Style::Ascii));
    }
}
