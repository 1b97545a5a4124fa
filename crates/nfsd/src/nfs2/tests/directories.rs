//! Directories of any size, in replies of any size.

use super::{long::long, *};
use std::collections::HashSet;

fn make(client: &Client, count: usize) -> Vec<String> {
    let made = |number: usize| format!("{}{number}", "n".repeat(number % 200));
    let mut all: Vec<_> = (0..count).map(made).collect();
    for name in &all {
        create(client, root(client), name, mode(0o644)).unwrap();
    }
    all.extend([".".into(), "..".into()]);
    all.sort();
    all
}

/// proves: NFS2-1094-2.2.17-a, NFS2-COOKIE-a
#[test]
fn every_name_is_listed_once_in_answers_of_any_size() {
    on_each(|client| {
        let (all, top) = (make(client, 150), root(client));
        for count in [0, 1, 100, 512, 4096, 8192, u32::MAX] {
            assert_eq!(names(client, top, count), all, "{count}");
        }
        let (entries, answers) = list(client, top, 512).unwrap();
        assert!(answers > 10);
        let numbers: HashSet<_> = entries.iter().map(|entry| entry.file_id).collect();
        assert_eq!(numbers.len(), entries.len() - 1, "each its own, but . and .. of the root");
        for name in ["n1", "nn2"] {
            let entry = entries.iter().find(|entry| entry.name == Name::from(name)).unwrap();
            assert_eq!(entry.file_id, lookup(client, top, name).unwrap().attributes.file_id, "{name}");
        }
    });
}

/// proves: NFS2-1094-2.2.17-a
#[test]
fn an_answer_has_no_more_octets_than_were_asked_for() {
    let client = in_memory();
    make(&client, 100);
    let directory = root(&client);
    for count in [300, 512, 1000, 4096, 8192] {
        let listing = client.ask(v2::ReadDirectory { directory, cookie: 0, count });
        let mut encoder = rpcrdma_xdr::Encoder::new();
        rpcrdma_xdr::Encode::encode(&listing, &mut encoder);
        assert!(encoder.finish().len() <= count as usize, "{count}");
    }
}

/// proves: NFS2-COOKIE-a, NFS2-COOKIE-b
#[test]
fn cookies_of_64_bits_lead_on_from_anywhere_and_after_a_restart() {
    let scratch = tempfile::tempdir().unwrap();
    let start = || Client::of(&serving(trusting(long(5000)), scratch.path(), &env()));
    let client = start();
    let top = root(&client);
    let (entries, answers) = list(&client, top, 2048).unwrap();
    assert!(answers > 20 && entries.len() == 5000);
    let after = |client: &Client, at: usize| {
        let asked = v2::ReadDirectory { directory: top, cookie: entries[at].cookie, count: 512 };
        let listing = ask(client, asked).unwrap();
        assert_eq!(listing.entries[..], entries[at + 1..][..listing.entries.len()], "after entry {at}");
        assert!(listing.end || !listing.entries.is_empty());
    };
    let restarted = start();
    for at in [0, 1, 2000, 4321, 4998] {
        after(&client, at);
        after(&restarted, at);
    }
    let last = ask(&client, v2::ReadDirectory { directory: top, cookie: entries[4999].cookie, count: 512 }).unwrap();
    assert!(last.end && last.entries.is_empty());
    let none = v2::ReadDirectory { directory: top, cookie: 0x8000_0001, count: 512 };
    assert_eq!(ask(&client, none).map(drop), Err(Status::IO), "a cookie that nobody was given");
}
