//! Read chunks where they should not be, and results that need more memory than the server has.

use super::{
    ops::{self, result},
    served::{Call, Client, LONG_LINK, Served, Setup, each_version, large},
    wire::{Lists, Refusal, Segment, filled},
};

/// Ten bytes, which need two bytes of padding.
const DATA: &[u8] = b"ten octets";

/// The result of a call with these Read chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    /// It is executed.
    Executed,
    /// Its WRITE cannot be decoded: the server executes the operations before it.
    BadXdr,
    /// The server refuses the call, and executes nothing of it.
    Refused,
}

/// Sends a COMPOUND of PUTFH, LOOKUP, WRITE and GETFH, some bytes of which are in chunks.
async fn judged(client: &mut Client, call: &Call, lists: &Lists, comes: Comes) {
    let message = client.exchange(call, lists).await;
    let [put, looked] = ops::at_it();
    let expected = match comes {
        Comes::Refused => client.wire.error(call.xid, Refusal::BadXdr),
        Comes::BadXdr => {
            let results = [put, looked, result(ops::WRITE, ops::BADXDR)];
            [client.header(call, &Lists::default()), client.results(ops::BADXDR, &results)].concat()
        }
        Comes::Executed => {
            // Only the server knows the verifier and the handle.
            let handle = 4 + client.root.len().next_multiple_of(4);
            let (write, get) = (message.len() - handle - 16..message.len() - handle - 8, message.len() - handle..);
            let write = ops::write_ok(DATA.len() as u32, &message[write]);
            let results = [put, looked, write, [&result(10, 0), &message[get]].concat()];
            [client.header(call, &Lists::default()), client.results(0, &results)].concat()
        }
    };
    assert_eq!(super::served::hex(&message), super::served::hex(&expected), "{:?}", lists.reads);
}

/// The whole call, with its WRITE's data inline, and the offset of these data.
fn whole(client: &mut Client) -> (Vec<u8>, Call, usize) {
    let root = client.root.clone();
    let front = client.call().ops(ops::to(&root, "new")).op(&ops::write(0, DATA.len() as u32));
    let at = front.end() as usize;
    let call = front.rest(&[DATA, &[0, 0]].concat()).op(&ops::get_fh());
    (call.octets(), call, at)
}

/// Puts four bytes of the call into a chunk, at each place in turn. Only at the Position of the data this is allowed,
/// but four bytes are not ten: that WRITE cannot be decoded, and the server executes the operations before it. At all
/// other places the server refuses the call, and its slot has not seen it: the next call has the same sequence number.
///
/// proves: ULB-5.1-c
#[test]
fn a_chunk_anywhere_but_at_the_data_refuses_the_call() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let (octets, _, data) = whole(&mut client);
        for at in (4..octets.len()).step_by(4) {
            let (octets, call, _) = whole(&mut client);
            let piece = client.wire.source(&octets[at..at + 4]);
            let lists = Lists::reads(&[(at as u32, piece)]);
            let comes = if at == data { Comes::BadXdr } else { Comes::Refused };
            let call = Raw { call, octets: [&octets[..at], &octets[at + 4..]].concat() };
            call.judged(&mut client, &lists, comes).await;
            client.wire.take(piece).await;
        }
        // Behind the end of the call nothing can be an argument.
        let (octets, call, _) = whole(&mut client);
        let piece = client.wire.source(DATA);
        let lists = Lists::reads(&[(octets.len() as u32, piece)]);
        judged(&mut client, &call, &lists, Comes::Refused).await;
        assert!(client.contents("new").await.is_empty(), "nothing was written");
    });
}

/// A call whose bytes were cut.
struct Raw {
    call: Call,
    octets: Vec<u8>,
}

impl Raw {
    async fn judged(&self, client: &mut Client, lists: &Lists, comes: Comes) {
        let header = client.wire.version.call(self.call.xid, false, lists);
        client.wire.say([header, self.octets.clone()].concat()).await;
        let message = client.wire.hear().await;
        let [put, looked] = ops::at_it();
        let expected = match comes {
            Comes::Refused => client.wire.error(self.call.xid, Refusal::BadXdr),
            Comes::BadXdr => {
                let results = [put, looked, result(ops::WRITE, ops::BADXDR)];
                [client.header(&self.call, &Lists::default()), client.results(ops::BADXDR, &results)].concat()
            }
            Comes::Executed => unreachable!("nothing of it is"),
        };
        assert_eq!(super::served::hex(&message), super::served::hex(&expected), "{:?}", lists.reads);
    }
}

/// A chunk is WRITE's argument if it has the length of the data, with or without padding, and no other length. Two
/// chunks for one WRITE are one too many; one chunk of two segments is allowed.
#[test]
fn a_write_takes_one_chunk_of_its_length() {
    each_version(Setup::default(), async |served: &Served| {
        let mut client = served.client(1).await;
        let padded = [DATA, &[0, 0], &[7; 100]].concat();
        let lent = client.wire.source(&padded);
        let piece =
            |from: usize, to: usize| Segment { length: (to - from) as u32, offset: lent.offset + from as u64, ..lent };
        let cases: &[(&[(u32, Segment)], Comes)] = &[
            (&[(0, piece(0, 10))], Comes::Executed),
            (&[(0, piece(0, 12))], Comes::Executed),
            (&[(0, piece(0, 4)), (0, piece(4, 10))], Comes::Executed),
            (&[(0, piece(0, 0)), (0, piece(0, 10))], Comes::Executed),
            (&[(0, piece(0, 9))], Comes::BadXdr),
            (&[(0, piece(0, 11))], Comes::BadXdr),
            (&[(0, piece(0, 13))], Comes::BadXdr),
            (&[(0, piece(0, 112))], Comes::BadXdr),
            (&[(0, piece(0, 4))], Comes::BadXdr),
            // A part of the data in each chunk.
            (&[(0, piece(0, 8)), (8, piece(8, 10))], Comes::BadXdr),
            // All data in the first chunk, and a second chunk behind it.
            (&[(0, piece(0, 10)), (12, piece(0, 10))], Comes::Refused),
        ];
        for (chunks, comes) in cases {
            let root = client.root.clone();
            let front = client.call().ops(ops::to(&root, "new")).op(&ops::write(0, DATA.len() as u32));
            let lists = Lists::reads(&chunks.iter().map(|(at, piece)| (front.end() + at, *piece)).collect::<Vec<_>>());
            judged(&mut client, &front.op(&ops::get_fh()), &lists, *comes).await;
        }
        assert_eq!(client.contents("new").await, DATA);
    });
}

/// Memory for results is 256 KiB. Each of several clients makes a call that needs far more: the first READ of a call
/// waits for its memory, and a later READ that would have to wait returns DELAY. So each client gets something, and
/// none waits for ever.
#[test]
fn reads_that_want_all_memory_do_not_lock_each_other_out() {
    const EACH: u32 = 64 << 10;
    const READS: usize = 61;
    let setup = Setup { memory: 256 << 10, ..Setup::default() };
    each_version(setup, async |served: &Served| {
        let mut clients = Vec::new();
        for number in 1..=4 {
            clients.push(served.client(number).await);
        }
        let large = large();
        let mut calls = Vec::new();
        for client in &mut clients {
            let root = client.root.clone();
            let sinks: Vec<_> = (0..64).map(|_| client.wire.sink(EACH as usize)).collect();
            let offered = Lists { writes: sinks.iter().map(|sink| vec![*sink]).collect(), ..Lists::default() };
            let call = client.call().ops(ops::to(&root, "large")).ops((0..READS).map(|_| ops::read(3, EACH)));
            let header = client.wire.version.call(call.xid, false, &offered);
            client.wire.say([header, call.octets()].concat()).await;
            calls.push((call, sinks));
        }
        let mut read_in_all = 0;
        for (client, (call, sinks)) in clients.iter_mut().zip(calls) {
            let message = client.wire.hear().await;
            // Everything in the reply except the number of READs is determined.
            let returned = |read: usize| {
                let length = |at| if at < read { EACH } else { 0 };
                let writes = sinks.iter().enumerate().map(|(at, sink)| vec![filled(*sink, length(at))]).collect();
                Lists { writes, ..Lists::default() }
            };
            let read = (1..=READS).find(|read| message.starts_with(&client.header(&call, &returned(*read))));
            let read = read.expect("the header of a reply with at least one READ");
            let reads = vec![ops::read_ok(false, EACH); read];
            let results = [&ops::at_it()[..], &reads, &[result(ops::READ, ops::DELAY)]].concat();
            let expected = [client.header(&call, &returned(read)), client.results(ops::DELAY, &results)].concat();
            assert_eq!(message[..], expected[..]);
            assert!(read <= 4, "256 KiB are four READs");
            read_in_all += read;
            for sink in &sinks[..read] {
                client.wire.has(*sink, &large[3..][..EACH as usize]).await;
            }
        }
        println!("{read_in_all} READs of {} KiB by four clients", EACH >> 10);
    });
}

/// The texts of links need memory as well: 64 KiB are sixteen long texts. After they were sent there is memory for as
/// many again.
#[test]
fn links_take_memory_as_data_does() {
    const FIT: usize = 16;
    let setup = Setup { memory: 64 << 10, ..Setup::default() };
    each_version(setup, async |served: &Served| {
        let mut client = served.client(1).await;
        let root = client.root.clone();
        for _ in 0..2 {
            let sinks: Vec<_> = (0..64).map(|_| client.wire.sink(LONG_LINK.len())).collect();
            let offered = Lists { writes: sinks.iter().map(|sink| vec![*sink]).collect(), ..Lists::default() };
            let mut returned = offered.clone();
            returned.writes[FIT..].iter_mut().for_each(|chunk| chunk[0].length = 0);
            let call = client.call().ops(ops::to(&root, "long")).ops((0..61).map(|_| ops::read_link()));
            let links = vec![ops::read_link_ok(LONG_LINK.len() as u32); FIT];
            let results = [&ops::at_it()[..], &links, &[result(27, ops::DELAY)]].concat();
            client.answered(&call, &offered, &returned, ops::DELAY, &results).await;
            for (at, sink) in sinks.into_iter().enumerate() {
                client.wire.has(sink, if at < FIT { LONG_LINK } else { &[] }).await;
            }
        }
    });
}
