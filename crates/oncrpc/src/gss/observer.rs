//! The events of contexts and of calls in them, for metrics and logs.

use super::Failure;
use std::net::SocketAddr;

/// Why there is no context, or why a call in one is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused<'a> {
    /// The credential is malformed, or of another version.
    Credential,
    /// Too much work waits, for the client's address or in all. In the second case the address with the most is
    /// refused.
    Busy,
    /// The mechanism refuses the token.
    Token(&'a Failure),
    /// There is no such context: it ended, was displaced by others, or belongs to another server.
    Unknown,
    /// The context has ended, or its numbers have.
    Over,
    /// The checksum of the header is wrong.
    Header,
    /// The arguments differ from those that were signed or sealed.
    Arguments,
}

impl Refused<'_> {
    /// Every value of [`word`](Self::word).
    pub const WORDS: [&'static str; 7] = ["credential", "busy", "token", "unknown", "over", "header", "arguments"];

    /// The reason in a word, for a counter.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Credential => "credential",
            Self::Busy => "busy",
            Self::Token(_) => "token",
            Self::Unknown => "unknown",
            Self::Over => "over",
            Self::Header => "header",
            Self::Arguments => "arguments",
        }
    }
}

/// Gets the events, each on the thread on which it happens. Peers can cause events as often as they like.
pub trait GssObserver: Send + Sync {
    /// A principal has made a context.
    fn made(&self, _peer: SocketAddr, _principal: &str) {}

    /// A token or a call was refused.
    fn refused(&self, _peer: SocketAddr, _why: Refused<'_>) {}

    /// A call was dropped, as its sequence number was seen before or is too old.
    fn dropped(&self, _peer: SocketAddr) {}
}

/// An observer that ignores everything.
pub(super) struct Unheard;

impl GssObserver for Unheard {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_word_of_the_list() {
        let failure = Failure { major: 1, minor: 2, text: String::new() };
        let all = [
            Refused::Credential,
            Refused::Busy,
            Refused::Token(&failure),
            Refused::Unknown,
            Refused::Over,
            Refused::Header,
            Refused::Arguments,
        ];
        assert_eq!(all.map(|refused| refused.word()), Refused::WORDS);
    }
}
