//! Which bytes leave a message and which stay, and how long memory is exposed.

use crate::{
    common::{arrays, call, reply, segment},
    peer::{Peer, credits, msg, payload, reads, writes},
};
use bytes::Bytes;
use rpcrdma_engine::{Action, Answer, Call, CallId, CallRefused, Config, ExposureId, Limits, Piece};
use rpcrdma_wire::v2::{Body, Chunks, ErrorBody, Header, Lists, Property, Segment, WriteChunk};
use rpcrdma_xdr::Payload;

/// All messages that an end sends: header, and the bytes behind it.
fn messages(peer: &mut Peer) -> Vec<(Header, Vec<u8>)> {
    let mut sent = Vec::new();
    while let Some(action) = peer.engine.poll() {
        if let Action::Send { octets, signaled, .. } = action {
            let octets = Bytes::from(octets.concat());
            let (header, len) = Header::decode(&octets).or_else(|_| Header::decode_piece(&octets)).unwrap();
            sent.push((header, octets[len..].to_vec()));
            if signaled {
                peer.engine.drained();
            }
        }
    }
    sent
}

/// A call as a client sends it: its Read chunks as (Position, bytes), and the bytes in the messages themselves.
fn sent_call(client: &mut Peer, xid: u32, message: Payload) -> (Vec<(u32, u32)>, Vec<u8>) {
    let Peer { engine, host, now } = &mut *client;
    engine.call(Call::new(CallId(xid.into()), xid, message).with_reply(100, &[]), *now, host).unwrap();
    let sent = messages(client);
    let mut chunks: Vec<(u32, u32)> = Vec::new();
    for (header, _) in &sent {
        for entry in header.body.chunks().unwrap().lists.reads.segments() {
            match chunks.iter_mut().find(|(position, _)| *position == entry.position) {
                Some((_, octets)) => *octets += entry.segment.length,
                None => chunks.push((entry.position, entry.segment.length)),
            }
        }
    }
    (chunks, sent.into_iter().flat_map(|(_, inline)| inline).collect())
}

/// Marked and unmarked runs in turn. The unmarked runs are as large as the marked ones, large enough for a chunk.
fn mixed(xid: u32, each: usize) -> Payload {
    let mut message = Payload::from(Bytes::from(call(xid)));
    for seed in 1..4 {
        message.push_run(Bytes::from(vec![seed; each]));
        message.push_item(Bytes::from(vec![0xF0 | seed; each]));
    }
    message
}

/// proves: V2-4.3.2-b, V2-4.3.5-g, V2-A.1-a
#[test]
fn only_what_is_marked_is_reduced() {
    for each in [1500, 9000, 70_000] {
        let mut client = Peer::ready(Config::client());
        let (chunks, inline) = sent_call(&mut client, 1, mixed(1, each));
        let each = each as u32;
        let marked = [24 + each, 24 + 3 * each, 24 + 5 * each];
        let (zero, reduced): (Vec<_>, Vec<_>) = chunks.into_iter().partition(|(position, _)| *position == 0);
        assert!(!reduced.is_empty(), "{each}: it does not fit otherwise");
        for (position, octets) in &reduced {
            assert!(marked.contains(position) && *octets == each, "{position}: no such item");
        }
        // All other bytes are inline or in the chunk that holds the stream.
        let left: u32 = zero.iter().map(|(_, octets)| octets).sum::<u32>() + inline.len() as u32;
        assert_eq!(left, 24 + 6 * each - reduced.len() as u32 * each);
        for seed in 1..4 {
            let unmarked = inline.iter().filter(|octet| **octet == seed).count();
            assert!(!zero.is_empty() || unmarked >= each as usize, "{each}: {unmarked} of {seed}");
        }
    }
}

/// proves: V2-11.2.2.3-a, V2-11.2.2.3-b, V2-11.2.2.3-c
#[test]
fn without_marks_a_message_is_continued_or_special_and_never_reduced() {
    for (each, parts) in [(1000, 2), (3000, 5), (70_000, 1)] {
        let mut client = Peer::ready(Config::client());
        let message = mixed(1, each).without_placement();
        let whole = message.to_bytes();
        let Peer { engine, host, now } = &mut client;
        engine.call(Call::new(CallId(1), 1, message).with_reply(300_000, &[]), *now, host).unwrap();
        let sent = messages(&mut client);
        assert_eq!(sent.len(), parts, "{each}");
        let inline: Vec<u8> = sent.iter().flat_map(|(_, inline)| inline.clone()).collect();
        for (header, _) in &sent {
            let lists = &header.body.chunks().unwrap().lists;
            assert!(lists.writes.is_empty());
            let all: u32 = lists.reads.segments().iter().map(|entry| entry.segment.length).sum();
            assert!(lists.reads.segments().iter().all(|entry| entry.position == 0));
            assert_eq!(all as usize, if each == 70_000 { whole.len() } else { 0 }, "whole, or not at all");
        }
        assert_eq!(inline, if each == 70_000 { &[][..] } else { &whole[..] });
        // The same for a reply, into the offered Reply chunk or in parts.
        for chunk in [true, false] {
            let mut server = Peer::ready(Config::server());
            let room = Lists { reply: writes(&[&[300_000]]).writes.0.pop().filter(|_| chunk), ..Lists::default() };
            let done = server.hear(&msg(1, false, false, room), &call(1));
            let mut results = Payload::from(Bytes::from(reply(1)));
            results.push_item(Bytes::from(vec![0xA5; each]));
            server.engine.answer(done.delivered()[0].0, Answer::Reply(results.without_placement()));
            let done = server.take();
            let written: usize = done
                .actions
                .iter()
                .map(|action| match action {
                    Action::Write { octets, .. } => octets.iter().map(Bytes::len).sum(),
                    _ => 0,
                })
                .sum();
            let inline: usize = done.sent.iter().map(|(_, octets, ..)| octets).sum();
            let all = if chunk && 24 + each + 36 > 4096 { (24 + each, 0) } else { (0, 24 + each) };
            // Parts beyond the credits wait; no part is in a chunk.
            assert!((written, inline) == all || (!chunk && written == 0 && each == 70_000), "{written} {inline}");
        }
    }
}

/// proves: V2-4.3.4.1-a, V2-4.3.4.1-b, V2-4.3.4.1-c, V2-4.3.4.2-a, V2-4.3.4.2-b, V2-4.3.4.4-a, V2-4.3.4.4-b
/// proves: V2-4.3.4.4-c
#[test]
fn counts_and_flags_stay_and_elements_move_whole() {
    let mut client = Peer::ready(Config { send_bytes: 1024, ..Config::client() });
    let (message, reduced, [elements, present]) = arrays(call(1), 5000);
    // Both items have to move: with either of them, the rest is longer than a message.
    let (chunks, inline) = sent_call(&mut client, 1, message);
    let [first, second] = [elements.len() as u32, present.len() as u32];
    assert_eq!(chunks, [(28, first), (32 + first, second)]);
    assert_eq!(inline, reduced, "the count of the outermost array, the flag, and nothing of what moved");
    assert!(!client.host.lent.is_empty());

    let mut server = Peer::ready(Config::server());
    let done = server.hear(&msg(1, false, false, writes(&[&[6012], &[5000]])), &call(1));
    let (message, reduced, moved) = arrays(reply(1), 5000);
    server.engine.answer(done.delivered()[0].0, Answer::Reply(message));
    let (mut written, mut sent) = (Vec::new(), Vec::new());
    while let Some(action) = server.engine.poll() {
        match action {
            Action::Write { octets, .. } => written.push(octets.concat()),
            Action::Send { octets, .. } => sent.push(Bytes::from(octets.concat())),
            _ => {}
        }
    }
    assert_eq!(written, moved, "with the counts within");
    let (_, len) = Header::decode(&sent[0]).unwrap();
    assert_eq!((sent.len(), &sent[0][len..]), (1, &reduced[..]));
}

/// A chunk moves a whole item, and the Position of the next item counts the moved bytes.
/// proves: V2-4.3.4.1-c, V2-4.3.5-f
#[test]
fn what_moved_is_put_back_in_its_place() {
    let mut server = Peer::ready(Config::server());
    let (_, reduced, [elements, present]) = arrays(call(1), 5000);
    let [first, second] = [elements.len() as u32, present.len() as u32];
    let done = server.hear(&msg(1, false, false, reads(&[(28, first), (32 + first, second)])), &reduced);
    let Some(Action::Pull { request, octets, .. }) = done.actions.first() else { panic!("{done:?}") };
    assert_eq!(*octets, elements.len() + present.len());
    server.engine.pulled(*request, &[elements.clone(), present.clone()].concat());
    let done = server.take();
    let Some(Action::Deliver { pieces, .. }) = done.actions.first() else { panic!("{done:?}") };
    let expected = [
        Piece::Inline(reduced[..28].to_vec().into()),
        Piece::Item(0..elements.len()),
        Piece::Inline(reduced[28..].to_vec().into()),
        Piece::Item(elements.len()..elements.len() + present.len()),
    ];
    assert_eq!(pieces[..], expected);
}

/// proves: V2-4.3.4-c
#[test]
fn chunks_are_as_large_as_the_upper_layer_wants() {
    let most = [u32::MAX; 3];
    let mut server = Peer::ready(Config::server());
    let done = server.hear(&msg(1, false, false, writes(&[&most, &most])), &call(1));
    assert_eq!((done.delivered().len(), done.errors()), (1, vec![]), "twelve gibibytes each");
    let limits = Limits { call_bytes: 3 * u64::from(u32::MAX), ..Limits::default() };
    let mut server = Peer::ready(Config { limits, ..Config::server() });
    let chunk = [(24, u32::MAX), (24, u32::MAX), (24, u32::MAX)];
    let done = server.hear(&msg(1, false, false, reads(&chunk)), &call(1));
    let Some(Action::Pull { octets, .. }) = done.actions.first() else { panic!("{done:?}") };
    assert_eq!(*octets as u64, limits.call_bytes);
    // The limit is our own, and the error says so.
    let done =
        server.hear(&msg(2, false, false, reads(&[(24, 1), (24, u32::MAX), (24, u32::MAX), (24, u32::MAX)])), &call(2));
    assert_eq!(done.errors(), [(2, ErrorBody::System)]);
}

/// proves: ULB-3.2-b
#[test]
fn a_reply_of_a_few_messages_needs_no_memory_for_it() {
    let mut client = Peer::ready(Config::client());
    for (xid, reply_max) in (1..).zip([4060, 4064, 20_000]) {
        let done = client.call(xid, payload(40), reply_max, &[], false);
        assert!(done.sent[0].0.body.chunks().is_some_and(Chunks::is_empty), "{reply_max}");
    }
    assert!(client.host.lent.is_empty());
    // And a client accepts such a reply.
    for part in 0..5 {
        let octets = [if part == 0 { reply(3) } else { Vec::new() }, vec![7; 3600]].concat();
        let done = client.hear(&msg(3, true, part < 4, Lists::default()), &octets);
        assert_eq!(done.completed(), usize::from(part == 4));
    }
}

/// proves: ULB-3.2-e, V2-6.4-h, V2-6.4-d
#[test]
fn a_reply_without_a_chunk_for_it_is_continued() {
    let small = Lists { reply: writes(&[&[100]]).writes.0.pop(), ..Lists::default() };
    for room in [Lists::default(), small] {
        let mut server = Peer::ready(Config::server());
        let done = server.hear(&msg(1, false, false, room), &call(1));
        let results = Payload::from(Bytes::from([reply(1), vec![7; 9000]].concat()));
        server.engine.answer(done.delivered()[0].0, Answer::Reply(results.clone()));
        let sent = messages(&mut server);
        assert_eq!(sent.iter().map(|(header, _)| header.flags.more).collect::<Vec<_>>(), [true, true, false]);
        let inline: Vec<u8> = sent.into_iter().flat_map(|(_, inline)| inline).collect();
        assert_eq!(inline, results.to_bytes(), "nothing is written");
    }
}

/// proves: V2-C.7-b, V2-11.1.2-b, V2-11.1.3-a, V2-11.1.3-b, V2-11.1-a
#[test]
fn memory_is_exposed_for_a_call_and_no_longer() {
    let mut client = Peer::ready(Config::client());
    assert!(client.host.lent.is_empty(), "nothing is exposed for good");
    let mut handles = Vec::new();
    for xid in 1..5 {
        // A call that waits for its credit exposes no memory either.
        let before = client.host.lent.len();
        let done = client.call(xid, mixed(xid, 9000), 300_000, &[150_000], false);
        let chunks = done.sent.last().unwrap().0.body.chunks().unwrap().clone();
        let lists = &chunks.lists;
        let named = lists.reads.segments().iter().map(|entry| entry.segment.handle);
        let written = lists.writes.chunks().iter().chain(&lists.reply).flat_map(|chunk| chunk.segments());
        let named: Vec<u32> = named.chain(written.map(|segment: &Segment| segment.handle)).collect();
        let lent: Vec<u32> = client.host.lent[before..].iter().map(|(_, handle)| *handle).collect();
        assert_eq!(named, lent, "all that is exposed is this call's");
        assert!(lent.contains(&chunks.inv_handle), "and what the reply may invalidate is among it");
        assert_eq!(client.engine.stats().exposed, lent.len());
        handles.extend(lent);
        let unused = Lists {
            writes: rpcrdma_wire::v2::WriteList(lists.writes.chunks().iter().filter_map(|c| c.filled(0)).collect()),
            reply: lists.reply.as_ref().and_then(|chunk| chunk.filled(0)),
            ..Lists::default()
        };
        let done = client.hear(&msg(xid, true, false, unused), &reply(xid));
        assert_eq!((done.completed(), client.engine.stats().exposed), (1, 0), "nothing of it is left");
    }
    let all = handles.len();
    handles.sort_unstable();
    handles.dedup();
    assert_eq!(handles.len(), all, "and no handle serves twice");
}

/// proves: V2-7.4-b, V2-11.1.3-c
#[test]
fn a_reply_is_not_given_out_while_its_memory_may_be_reached() {
    let mut client = Peer::ready(Config::client());
    let done = client.call(1, payload(40), 90_000, &[80_000], false);
    let writes = done.sent[0].0.body.chunks().unwrap().lists.writes.chunks()[0].filled(80_000).unwrap();
    let lists = Lists { writes: rpcrdma_wire::v2::WriteList(vec![writes].into()), ..Lists::default() };
    let octets = [msg(1, true, false, lists).to_bytes().to_vec(), reply(1)].concat();
    client.engine.received(octets.into(), client.now, &mut client.host);
    let ended = |client: &mut Peer| {
        let (mut exposure, mut completed) = (None, 0);
        while let Some(action) = client.engine.poll() {
            match action {
                Action::Invalidate { exposure: id, .. } => exposure = Some(id),
                Action::Complete { .. } => completed += 1,
                Action::Send { signaled: true, .. } => client.engine.drained(),
                _ => {}
            }
        }
        (exposure, completed)
    };
    let (exposure, completed) = ended(&mut client);
    let exposure: ExposureId = exposure.expect("the memory is taken back first");
    assert_eq!(completed, 0);
    // The engine waits as long as it takes, whatever else arrives: the provider fences, or ends the connection.
    for hour in 1..10 {
        let now = client.now + std::time::Duration::from_secs(3600 * hour);
        client.engine.wake(now, &mut client.host);
        client.hear(&Header::grant(credits()), &[]);
        assert_eq!(ended(&mut client), (None, 0));
    }
    client.engine.fenced(exposure);
    assert_eq!(ended(&mut client), (None, 1));
}

/// What a server does for one call, in order: its RDMA Writes, by handle, and its messages.
fn answered(server: &mut Peer, room: Lists, results: Payload) -> (Vec<(u32, Vec<u8>)>, Vec<Header>) {
    let done = server.hear(&msg(1, false, false, room), &call(1));
    server.engine.answer(done.delivered()[0].0, Answer::Reply(results));
    let (mut written, mut sent): (Vec<(u32, Vec<u8>)>, _) = (Vec::new(), Vec::new());
    while let Some(action) = server.engine.poll() {
        match action {
            Action::Write { to, octets, .. } => {
                assert!(sent.is_empty(), "a Write after a Send of the reply that tells of it");
                match written.last_mut() {
                    Some((handle, all)) if *handle == to.handle => all.extend(octets.concat()),
                    _ => written.push((to.handle, octets.concat())),
                }
            }
            Action::Send { octets, .. } => sent.push(Header::decode(&octets.concat().into()).unwrap().0),
            _ => {}
        }
    }
    (written, sent)
}

/// proves: V2-4.4.3-e, V2-4.4.3-f, V2-4.4.2.1-b, V2-4.3.6-f, V2-3.2.2.4-b, V2-4.4.3-i
#[test]
fn results_are_written_first_and_the_rest_goes_where_there_is_room() {
    let results = || {
        let mut results = Payload::from(Bytes::from([reply(1), vec![0x11; 9000]].concat()));
        results.push_item(Bytes::from(vec![0xA5; 7001]));
        results.push_run(Bytes::from(vec![0x22; 4]));
        results
    };
    let chunk = |handle, length| WriteChunk(vec![segment(handle, length)].into());
    let item = (6, vec![0xA5; 7001]);
    let rest = [reply(1), vec![0x11; 9000], vec![0x22; 4]].concat();
    // Into both chunks: the item into the Write chunk, and the rest, which fits no message, into the Reply chunk.
    let room = Lists { reply: Some(chunk(7, 50_000)), ..writes(&[&[8000]]) };
    let (written, sent) = answered(&mut Peer::ready(Config::server()), room, results());
    assert_eq!(written, [item.clone(), (7, rest.clone())]);
    let [header] = &sent[..] else { panic!("{sent:?}") };
    let lists = &header.body.chunks().unwrap().lists;
    assert!(matches!(header.body, Body::Nomsg(_)));
    assert_eq!((lists.writes.chunks()[0].len(), lists.reply.as_ref().unwrap().len()), (7001, rest.len() as u64));
    // Without a Reply chunk the reply goes in parts; the last part has the lists.
    let (written, sent) = answered(&mut Peer::ready(Config::server()), writes(&[&[8000]]), results());
    assert_eq!((written, sent.len()), (vec![item], 3));
    let returned = |header: &Header| header.body.chunks().unwrap().lists.writes.chunks().first().map(WriteChunk::len);
    assert_eq!(sent.iter().map(returned).collect::<Vec<_>>(), [None, None, Some(7001)]);
    assert!(sent.iter().all(|header| header.body.chunks().unwrap().lists.reads.is_empty()));
}

/// proves: V2-7.4-a
#[test]
fn a_call_that_cannot_be_sent_fails_at_once() {
    let config = Config { credits_wanted: 4, ..Config::server() };
    let mut server = Peer::announced(config.clone(), vec![Property::Reverse(1)]);
    let done = server.call(1, payload(4096 - 36 + 4), 100, &[], false);
    assert_eq!(done.failed(), [CallRefused::TooLargeInline { len: 4100, max: 4096 }.into()]);
    assert!(done.sent.is_empty());
    assert_eq!(server.call(2, payload(4096 - 36), 100, &[], false).sent.len(), 1, "at the limit");
}
