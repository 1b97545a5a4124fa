//! A relay between the command and a server that counts connections and bytes, and can cut a connection once.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

/// The bytes that have passed.
#[derive(Clone, Default)]
pub(crate) struct Counted(Arc<Mutex<Vec<u64>>>);

impl Counted {
    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.0.lock().unwrap()
    }

    /// The bytes of each connection in both directions together, in the order of the connections.
    pub(crate) fn octets(&self) -> Vec<u64> {
        self.lock().clone()
    }

    fn add(&self, connection: usize, octets: usize) -> u64 {
        let mut counts = self.lock();
        counts[connection] += octets as u64;
        counts[connection]
    }
}

/// An address that leads to `server`; the connection of the number in `cut` is cut once so many bytes have passed. It
/// lives as long as the process.
pub(crate) fn counting(server: &str, cut: Option<(usize, u64)>) -> (String, Counted) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (server, counted) = (server.to_owned(), Counted::default());
    let counts = counted.clone();
    thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let (client, onward) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            counts.lock().push(0);
            let limit = cut.filter(|(cut, _)| *cut == number).map_or(u64::MAX, |(_, octets)| octets);
            for (from, to) in [(&client, &onward), (&onward, &client)] {
                let (from, to, counts) = (from.try_clone().unwrap(), to.try_clone().unwrap(), counts.clone());
                thread::spawn(move || pass(from, to, |octets| counts.add(number, octets) <= limit));
            }
        }
    });
    (address, counted)
}

fn pass(mut from: TcpStream, mut to: TcpStream, may: impl Fn(usize) -> bool) {
    let mut octets = vec![0; 1 << 16];
    loop {
        match from.read(&mut octets) {
            Ok(read @ 1..) if !may(read) || to.write_all(&octets[..read]).is_err() => {
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                return;
            }
            Ok(1..) => {}
            Ok(0) | Err(_) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
        }
    }
}
