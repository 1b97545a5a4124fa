//! A proxy between the command and a server over TCP that changes or delays records.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How many connections still have bytes to pass on to the server.
pub(crate) type Passing = Arc<AtomicUsize>;

/// Waits until the bytes of all clients have been passed on to the server; the clients must have ended.
pub(crate) fn wait_until_idle(passing: &Passing) {
    let begin = Instant::now();
    while passing.load(Ordering::SeqCst) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "a client is still there");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Passes everything on, and lets a function change each record of the server; a record begins with its mark. Returns
/// the address to connect to. The proxy lives as long as the process.
pub(crate) fn between(server: &str, change: impl FnMut(&mut Vec<u8>) + Send + 'static) -> String {
    each_way(server, |_| {}, change).0
}

/// Pauses before each record of more than 100,000 bytes that the client sends.
pub(crate) fn slow_calls(server: &str, pause: Duration) -> (String, Passing) {
    each_way(server, move |record| pause_for(record, pause), |_| {})
}

/// The same for records that the server sends.
pub(crate) fn slow_replies(server: &str, pause: Duration) -> (String, Passing) {
    each_way(server, |_| {}, move |record| pause_for(record, pause))
}

fn pause_for(record: &[u8], pause: Duration) {
    if record.len() > 100_000 {
        thread::sleep(pause);
    }
}

fn each_way(
    server: &str,
    calls: impl FnMut(&mut Vec<u8>) + Send + 'static,
    replies: impl FnMut(&mut Vec<u8>) + Send + 'static,
) -> (String, Passing) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = server.to_owned();
    let passing = Passing::default();
    let passed = passing.clone();
    let (calls, replies) = (Arc::new(Mutex::new(calls)), Arc::new(Mutex::new(replies)));
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (calls, replies) = (calls.clone(), replies.clone());
            passing.fetch_add(1, Ordering::SeqCst);
            let passing = passing.clone();
            thread::spawn(move || {
                pass(from_client, to_server, |record| calls.lock().unwrap()(record));
                passing.fetch_sub(1, Ordering::SeqCst);
            });
            thread::spawn(move || pass(server, client, |record| replies.lock().unwrap()(record)));
        }
    });
    (address, passed)
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut change: impl FnMut(&mut Vec<u8>)) {
    while let Some(mut record) = record(&mut from) {
        change(&mut record);
        if to.write_all(&record).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Read);
    let _ = to.shutdown(Shutdown::Write);
}

/// The next fragment, with its mark.
fn record(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).ok()?;
    let mut whole = mark.to_vec();
    whole.resize(4 + (u32::from_be_bytes(mark) & 0x7FFF_FFFF) as usize, 0);
    stream.read_exact(&mut whole[4..]).ok()?;
    Some(whole)
}

/// Lets a function change each record that the client sends.
pub(crate) fn calls(server: &str, change: impl FnMut(&mut Vec<u8>) + Send + 'static) -> String {
    each_way(server, change, |_| {}).0
}
