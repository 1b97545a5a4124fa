//! A look at a whole message without taking it apart: which procedure a call is for, and how a reply answers.
//!
//! For code that counts messages between a transport and a service. Nothing is copied, shared or allocated. For parts
//! that cannot be read the result is `None`: the message's owner finds out why.

use crate::{CallId, MAX_AUTH_BODY_BYTES, Rejection, message::Word};
use rpcrdma_xdr::{Decoder, Part, Payload, Stream, StreamPart};

/// How a reply answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replied {
    /// The call was executed. Holds the first word of the results, if there is one: in many programs it is a status.
    Results(Option<u32>),
    /// The call was not executed.
    Rejected(Rejection),
}

/// In which direction a message goes: `msg_type` of RFC 5531 section 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Call,
    Reply,
}

/// The XID of a message and in which direction it goes, if its second word says so.
pub(crate) fn peek_direction(message: &Stream) -> Option<(u32, Option<Direction>)> {
    direction(words_of(message))
}

/// The same for a message in one piece.
pub(crate) fn peek_direction_of(message: &[u8]) -> Option<(u32, Option<Direction>)> {
    direction(Words::of(std::iter::once(message)))
}

fn direction<'a>(mut words: Words<'a, impl Iterator<Item = &'a [u8]>>) -> Option<(u32, Option<Direction>)> {
    let xid = words.next()?;
    let direction = words.next().and_then(|word| match word {
        Word::CALL => Some(Direction::Call),
        Word::REPLY => Some(Direction::Reply),
        _ => None,
    });
    Some((xid, direction))
}

/// Which procedure a call is for, if the words that say so are inline.
pub fn peek_call(message: &Stream) -> Option<CallId> {
    let [xid, _, _, program, version, procedure] = first_words(message)?;
    Some(CallId { xid, program, version, procedure })
}

/// How a reply of this crate's [`ReplyHeader`](crate::ReplyHeader) answers.
pub fn peek_reply(reply: &Payload) -> Option<Replied> {
    let runs = reply.parts().iter().map_while(|part| match part {
        Part::Run(run) => Some(&run[..]),
        Part::Item(_) => None,
    });
    let mut words = Words::of(runs);
    let _xid = words.next()?;
    if words.next()? != Word::REPLY {
        return None;
    }
    let is_accepted = words.next()? != Word::MSG_DENIED;
    if is_accepted {
        let _flavour = words.next()?;
        let octets = words.next()?;
        words.skip(octets.div_ceil(4) as usize)?;
    }
    let (stat, mut word) = (words.next()?, || words.next().ok_or(()));
    match is_accepted {
        true => match Rejection::of_accepted(stat, &mut word).ok()?? {
            Ok(()) => Some(Replied::Results(words.next())),
            Err(rejection) => Some(Replied::Rejected(rejection)),
        },
        false => Rejection::of_denied(stat, &mut word).ok()?.map(Replied::Rejected),
    }
}

/// The number of a call's flavour, if it is inline.
pub fn peek_flavour(message: &Stream) -> Option<u32> {
    let mut words = words_of(message);
    words.skip(6)?;
    words.next()
}

/// The first word of results, if they have one.
pub(crate) fn peek_word(results: &Payload) -> Option<u32> {
    Words::of(results.parts().iter().map_while(|part| match part {
        Part::Run(run) => Some(&run[..]),
        Part::Item(_) => None,
    }))
    .next()
}

/// Lets `ask` read the words that arguments begin with.
pub(crate) fn ask_words<T>(arguments: &Decoder, ask: impl FnOnce(&mut ArgumentWords<'_>) -> T) -> T {
    let mut runs = arguments.parts().map_while(|part| match part {
        StreamPart::Run(run) => Some(&run[..]),
        StreamPart::Chunk(_) => None,
    });
    ask(&mut ArgumentWords(Words::of(&mut runs)))
}

/// The first six words of a message, if they are inline.
pub(crate) fn first_words(message: &Stream) -> Option<[u32; 6]> {
    if let Some(StreamPart::Run(run)) = message.parts().next()
        && let Some(head) = run.first_chunk::<24>()
        && let (words, []) = head.as_chunks::<4>()
        && let Some(words) = words.first_chunk()
    {
        // Most messages lie in one piece.
        return Some(words.map(u32::from_be_bytes));
    }
    let mut read = words_of(message);
    let mut words = [0; 6];
    for word in &mut words {
        *word = read.next()?;
    }
    Some(words)
}

/// The words that a message begins with, as far as they are inline.
fn words_of(message: &Stream) -> Words<'_, impl Iterator<Item = &[u8]>> {
    Words::of(message.parts().map_while(|part| match part {
        StreamPart::Run(run) => Some(&run[..]),
        StreamPart::Chunk(_) => None,
    }))
}

/// The words of a call's arguments in their order, up to its first chunk.
pub struct ArgumentWords<'a>(Words<'a, &'a mut dyn Iterator<Item = &'a [u8]>>);

/// Lets `ask` read the words of a call's arguments, if its header is inline and whole.
pub(crate) fn ask_arguments<T>(message: &Stream, ask: impl FnOnce(&mut ArgumentWords<'_>) -> T) -> Option<T> {
    let mut runs = message.parts().map_while(|part| match part {
        StreamPart::Run(run) => Some(&run[..]),
        StreamPart::Chunk(_) => None,
    });
    let mut words = ArgumentWords(Words::of(&mut runs));
    words.0.skip(6)?;
    // The credential and the verifier.
    for _ in 0..2 {
        words.next()?;
        words.skip_opaque(MAX_AUTH_BODY_BYTES as u32)?;
    }
    Some(ask(&mut words))
}

impl ArgumentWords<'_> {
    /// The next word.
    #[allow(clippy::should_implement_trait, reason = "it reads like the decoder's, and nobody iterates")]
    pub fn next(&mut self) -> Option<u32> {
        self.0.next()
    }

    /// Skips bytes of variable length; `None` if there are more of them than `max`.
    pub fn skip_opaque(&mut self, max: u32) -> Option<()> {
        let octets = self.next().filter(|octets| *octets <= max)?;
        self.0.skip(octets.div_ceil(4) as usize)
    }
}

/// The words of runs that may be cut anywhere.
struct Words<'a, I> {
    runs: I,
    rest: &'a [u8],
}

impl<'a, I: Iterator<Item = &'a [u8]>> Words<'a, I> {
    fn of(runs: I) -> Self {
        Self { runs, rest: &[] }
    }

    /// Skips `words` words; `None` if there are fewer.
    fn skip(&mut self, words: usize) -> Option<()> {
        let mut octets = words.saturating_mul(size_of::<u32>());
        while octets > self.rest.len() {
            octets -= self.rest.len();
            self.rest = self.runs.next()?;
        }
        self.rest = &self.rest[octets..];
        Some(())
    }

    fn next(&mut self) -> Option<u32> {
        if self.rest.is_empty() {
            self.rest = self.runs.next()?;
        }
        if let Some((word, rest)) = self.rest.split_first_chunk() {
            self.rest = rest;
            return Some(u32::from_be_bytes(*word));
        }
        let mut value = [0; 4];
        for octet in &mut value {
            while self.rest.is_empty() {
                self.rest = self.runs.next()?;
            }
            let (first, others) = self.rest.split_first()?;
            (*octet, self.rest) = (*first, others);
        }
        Some(u32::from_be_bytes(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AuthStat, CallHeader, OpaqueAuth, ReplyHeader};
    use bytes::Bytes;
    use rpcrdma_xdr::Encoder;

    fn reply(status: Result<(), Rejection>, verifier: usize, results: &'static [u8]) -> Payload {
        let verifier = OpaqueAuth { flavour: 0, body: vec![7; verifier].into() };
        let mut encoder = Encoder::new();
        ReplyHeader { xid: 5, verifier, status }.encode(&mut encoder);
        let mut payload = encoder.finish();
        payload.push_run(Bytes::from_static(results));
        payload
    }

    #[test]
    fn the_status_behind_any_verifier_is_seen() {
        for verifier in [0, 3, 4, 400] {
            let seen = peek_reply(&reply(Ok(()), verifier, &[0, 0, 0, 28, 1, 2, 3, 4]));
            assert_eq!(seen, Some(Replied::Results(Some(28))), "{verifier} bytes");
        }
        assert_eq!(peek_reply(&reply(Ok(()), 0, &[])), Some(Replied::Results(None)));
        assert_eq!(peek_reply(&Payload::new()), None);
    }

    #[test]
    fn every_rejection_is_seen_as_it_is_and_has_a_name_of_its_own() {
        let mut all = vec![
            Rejection::ProgramUnavailable,
            Rejection::ProgramMismatch { low: 1, high: 3 },
            Rejection::ProcedureUnavailable,
            Rejection::GarbageArgs,
            Rejection::SystemError,
            Rejection::RpcMismatch { low: 2, high: 2 },
            Rejection::Auth(AuthStat(0)),
        ];
        all.extend((1..8).chain([13, 14]).map(|reason| Rejection::Auth(AuthStat(reason))));
        for rejection in &all {
            assert_eq!(peek_reply(&reply(Err(*rejection), 8, &[])), Some(Replied::Rejected(*rejection)));
        }
        let names: Vec<_> = all.iter().map(|rejection| rejection.name()).collect();
        assert_eq!(names, Rejection::names().collect::<Vec<_>>());
        assert_eq!(Rejection::Auth(AuthStat::TOO_WEAK).name(), "AUTH_TOOWEAK");
        assert_eq!(Rejection::Auth(AuthStat(u32::MAX)).name(), "AUTH_ERROR");
    }

    #[test]
    fn a_status_that_the_specification_does_not_have_is_not_seen() {
        for words in [&[5, 1, 0, 0, 0, 6][..], &[5, 1, 1, 2, 2, 2], &[5, 1, 0, 0, 0, 2, 1]] {
            let mut encoder = Encoder::new();
            words.iter().for_each(|word| encoder.u32(*word));
            assert_eq!(peek_reply(&encoder.finish()), None, "{words:?}");
        }
    }

    #[test]
    fn calls_and_replies_are_told_apart_however_they_are_cut() {
        let seen = |words: &[u32], cut: usize| {
            let octets: Bytes = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let mut stream = Stream::from(octets.slice(..cut));
            stream.push_run(octets.slice(cut..));
            assert_eq!(peek_direction(&stream), peek_direction_of(&octets));
            peek_direction(&stream)
        };
        for cut in 1..8 {
            assert_eq!(seen(&[7, 0], cut), Some((7, Some(Direction::Call))), "{cut}");
            assert_eq!(seen(&[7, 1, 5], cut), Some((7, Some(Direction::Reply))), "{cut}");
            assert_eq!(seen(&[7, 2], cut), Some((7, None)), "{cut}");
        }
        assert_eq!(seen(&[7], 2), Some((7, None)));
        assert_eq!(seen(&[], 0), None);
    }

    #[test]
    fn a_call_is_seen_however_it_is_cut() {
        let id = CallId { xid: 1, program: 2, version: 3, procedure: 4 };
        let mut encoder = Encoder::new();
        CallHeader { id, credential: OpaqueAuth::none(), verifier: OpaqueAuth::none() }.encode(&mut encoder);
        let octets = encoder.finish().to_bytes();
        for cut in 1..24 {
            let mut stream = Stream::from(octets.slice(..cut));
            assert_eq!(peek_call(&stream), None, "{cut} bytes");
            assert_eq!(peek_flavour(&stream), None, "{cut} bytes");
            stream.push_run(octets.slice(cut..));
            assert_eq!(peek_call(&stream), Some(id), "{cut}");
            assert_eq!(peek_flavour(&stream), Some(0), "{cut}");
        }
    }

    #[test]
    fn words_are_skipped_however_they_are_cut() {
        let octets: Vec<u8> = (0..10u32).flat_map(u32::to_be_bytes).collect();
        for (first, second) in (0..=40).flat_map(|second| (0..=second).map(move |first| (first, second))) {
            let runs = || [&octets[..first], &octets[first..second], &octets[second..]].into_iter();
            for skipped in 0..10 {
                let mut words = Words::of(runs());
                assert_eq!(words.next(), Some(0));
                assert_eq!(
                    (words.skip(skipped), words.next()),
                    (Some(()), (skipped < 9).then_some(skipped as u32 + 1))
                );
            }
            assert_eq!(Words::of(runs()).skip(10), Some(()));
            assert_eq!(Words::of(runs()).skip(11), None);
            assert_eq!(Words::of(runs()).skip(usize::MAX), None);
        }
    }

    #[test]
    fn the_arguments_behind_any_credential_are_seen_and_those_behind_none_are_not() {
        let call = |body: usize| {
            let id = CallId { xid: 1, program: 2, version: 3, procedure: 4 };
            let credential = OpaqueAuth { flavour: 1, body: vec![9; body].into() };
            let mut encoder = Encoder::new();
            CallHeader { id, credential, verifier: OpaqueAuth::none() }.encode(&mut encoder);
            encoder.opaque(b"tag");
            encoder.u32(7);
            Stream::from(encoder.finish().to_bytes())
        };
        let minor = |words: &mut ArgumentWords<'_>| words.skip_opaque(4).and_then(|()| words.next());
        for body in [0, 3, 4, MAX_AUTH_BODY_BYTES] {
            assert_eq!(ask_arguments(&call(body), minor), Some(Some(7)), "{body} bytes");
        }
        assert_eq!(ask_arguments(&call(MAX_AUTH_BODY_BYTES + 1), minor), None);
        assert_eq!(ask_arguments(&call(0), |words| words.skip_opaque(2)), Some(None), "the tag is longer");
        assert_eq!(ask_arguments(&Stream::from(Bytes::from_static(&[0; 20])), minor), None);
    }
}
