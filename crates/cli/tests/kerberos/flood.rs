//! Tens of thousands of tokens that never become a context, and their effect on others.

use crate::{Client, KRB5I, NFS, Reader, Wire, init, mount, opaque, plain, start, status, token};
use rpcrdma_gss::realm::within;
use rpcrdma_peers::idlers::dial_from;
use std::{
    fs,
    io::{self, Write},
    net::Shutdown,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The addresses from which the flood comes, and the connections of each.
const ADDRESSES: u8 = 4;
const CONNECTIONS: usize = 3;
/// How many tokens are sent at a time, and at least in total: ten thousand a second for five seconds.
const BATCH: u64 = 50;
const TOKENS: u64 = 50_000;
/// How many contexts others make meanwhile, at least.
const CONTEXTS: u32 = 5;
/// When the flood ends in any case.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long another client may wait, on a machine with other work: far less than a client's patience.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The most memory that a flood may take, in KiB: 16 MiB of tokens that wait, and what connections have read.
const MAX_GROWTH_KIB: u64 = 96 << 10;

/// A figure of a process in KiB.
fn kib(pid: u32, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Processor time of a process in hundredths of a second.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind_name = stat.rsplit_once(')').unwrap().1;
    behind_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Sends tokens as fast as the server takes them until `over`, and does not wait for single answers.
fn pour(address: [u8; 4], to: &str, messages: &[Vec<u8>], sent: &AtomicU64, over: &AtomicBool) {
    let mut stream = dial_from(address, to);
    let mut answers = stream.try_clone().unwrap();
    let reader = thread::spawn(move || drop(io::copy(&mut answers, &mut io::sink())));
    let record = |message: &Vec<u8>| [&(0x8000_0000 | message.len() as u32).to_be_bytes()[..], message].concat();
    let batch: Vec<u8> = messages.iter().cycle().take(BATCH as usize).flat_map(record).collect();
    while !over.load(Ordering::Relaxed) && stream.write_all(&batch).is_ok() {
        sent.fetch_add(BATCH, Ordering::Relaxed);
    }
    let _ = stream.shutdown(Shutdown::Both);
    reader.join().unwrap();
}

/// Ends the flood.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Some tokens are invalid; others are a user's tokens recorded on the path: the server decrypts each of these, and
/// finds that it was used before.
#[test]
fn beginnings_without_end_stop_nobody_and_take_bounded_memory() {
    within("flood::beginnings_without_end_stop_nobody_and_take_bounded_memory", |realm| {
        let server = start(realm, "127.0.0.105", "krb5i", &[]);
        let (tcp, pid) = (server.tcp.clone().unwrap(), server.pid());
        let args = opaque(&mount(&server).0);
        let mut alice = Client::new(realm, "alice", &tcp);
        let recorded = token(realm, "bob").1;
        let used = plain(&Wire::to(&tcp).ask(&init(&recorded))).unwrap();
        assert_eq!(Reader(&used).opaque().len(), 16, "its owner's context");
        let messages = [init(&[0x60; 2000]), init(&recorded)];
        let (sent, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let (before, begin) = (kib(pid, "VmRSS"), Instant::now());
        let (mut made, mut slowest) = (0, Duration::ZERO);
        thread::scope(|scope| {
            let (tcp, messages, sent, over) = (&tcp, &messages, &sent, &over);
            // Ends the flood also if something below fails.
            let _end = Ends(over);
            for number in 0..ADDRESSES {
                for _ in 0..CONNECTIONS {
                    scope.spawn(move || pour([127, 0, 1, number], tcp, messages, sent, over));
                }
            }
            let lasts = |made| made < CONTEXTS || sent.load(Ordering::Relaxed) < TOKENS;
            while lasts(made) && begin.elapsed() < PATIENCE {
                let begin = Instant::now();
                let mut bob = Client::new(realm, "bob", tcp);
                assert_eq!(status(bob.ask([NFS, 3, 1], KRB5I, &args)), 0);
                assert_eq!(status(alice.ask([NFS, 3, 1], KRB5I, &args)), 0);
                slowest = slowest.max(begin.elapsed());
                made += 1;
            }
        });
        let (took, growth) = (begin.elapsed(), kib(pid, "VmHWM").saturating_sub(before));
        let sent = sent.into_inner();
        eprintln!("{sent} tokens in {took:?}, {made} contexts meanwhile, the slowest in {slowest:?}, {growth} KiB");
        assert!(sent >= TOKENS, "{sent} tokens are no flood");
        assert!(made >= CONTEXTS && slowest < LONGEST_WAIT, "{made} contexts, the slowest in {slowest:?}");
        assert!(growth < MAX_GROWTH_KIB, "{growth} KiB more");
        // The senders are gone, and the server does no work for them any more.
        thread::sleep(Duration::from_secs(1));
        let before = ticks(pid);
        thread::sleep(Duration::from_secs(1));
        assert!(ticks(pid) - before < 50, "it works on for nobody");
        assert_eq!(server.stop(), Some(0));
    });
}
