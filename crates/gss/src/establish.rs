//! Making a context: both ends exchange tokens until both have it.
//!
//! A step takes the state by value and gives it back, or the context, or an error: after a failure the state cannot be
//! used again.

use crate::{
    Context, Credential, Error, Gss, Name, Octets,
    context::Owned,
    sys::{CONFIDENTIALITY, CONTINUE_NEEDED, INTEGRITY, KERBEROS, KERBEROS_OCTETS, MUTUAL, RawBuffer, Word},
};
use std::ptr::null_mut;

/// How far a context is.
#[derive(Debug)]
pub enum Progress<Unfinished> {
    /// The peer has to answer.
    More {
        /// The state that takes the answer.
        unfinished: Unfinished,
        /// The token to send to the peer.
        token: Octets,
    },
    /// This end has its context.
    Done {
        /// The context.
        context: Context,
        /// The last token to send to the peer; it may be empty.
        token: Octets,
    },
}

/// Makes a context with a service.
#[derive(Debug)]
pub struct Initiator {
    raw: Owned,
    credential: Credential,
    service: Name,
}

/// Makes contexts with initiators.
#[derive(Debug)]
pub struct Acceptor {
    raw: Owned,
    credential: Credential,
}

impl Gss {
    /// Begins a context with `service`, which has to prove who it is.
    pub fn initiator(self, credential: &Credential, service: Name) -> Initiator {
        Initiator { raw: Owned::none(self), credential: credential.clone(), service }
    }

    /// Begins a context with the initiator that sends the first token.
    pub fn acceptor(self, credential: &Credential) -> Acceptor {
        Acceptor { raw: Owned::none(self), credential: credential.clone() }
    }
}

impl Initiator {
    /// The next step: with the peer's token, which is empty before the first.
    ///
    /// # Errors
    /// If there is no ticket for the service, or the KDC does not answer, or the peer's token is not the service's.
    pub fn step(mut self, token: &[u8]) -> Result<Progress<Self>, Error> {
        const WHAT: &str = "cannot make a context with the service";
        let gss = self.raw.gss;
        let (mut minor, mut answer, mut flags) = (0, Octets::empty(gss), 0);
        let token = RawBuffer::lend(token);
        let context = &mut self.raw.raw;
        // SAFETY: all that is pointed to lives until the call ends. The context is none before the first step, and then
        // the one of the step before; the library deletes a context only if its first step fails.
        let major = self.credential.with(|credential| unsafe {
            (gss.0.gss_init_sec_context)(
                &mut minor,
                credential,
                context,
                self.service.raw,
                KERBEROS.as_ptr(),
                MUTUAL | INTEGRITY | CONFIDENTIALITY,
                0,
                null_mut(),
                &token,
                null_mut(),
                answer.as_mut_ptr(),
                &mut flags,
                null_mut(),
            )
        });
        let major = gss.check(WHAT, major, minor)?;
        if major & CONTINUE_NEEDED != 0 {
            return Ok(Progress::More { unfinished: self, token: answer });
        }
        if flags & MUTUAL == 0 {
            return Err(Error::unfit(WHAT, "the service has not proven who it is"));
        }
        done(WHAT, self.raw, flags, answer)
    }
}

impl Acceptor {
    /// The next step, with the peer's token.
    ///
    /// # Errors
    /// If the token is malformed, not for a key of the keytab, seen before, or too old or too new for this clock.
    pub fn step(mut self, token: &[u8]) -> Result<Progress<Self>, Error> {
        const WHAT: &str = "cannot accept a context";
        let gss = self.raw.gss;
        if self.raw.raw.is_null() && !is_kerberos(token) {
            return Err(Error { major: DEFECTIVE_TOKEN, ..Error::unfit(WHAT, NO_TOKEN) });
        }
        let (mut minor, mut answer, mut flags) = (0, Octets::empty(gss), 0);
        let token = RawBuffer::lend(token);
        let context = &mut self.raw.raw;
        // SAFETY: as in the initiator's step. We do not ask for a credential that the peer delegates.
        let major = self.credential.with(|credential| unsafe {
            (gss.0.gss_accept_sec_context)(
                &mut minor,
                context,
                credential,
                &token,
                null_mut(),
                null_mut(),
                null_mut(),
                answer.as_mut_ptr(),
                &mut flags,
                null_mut(),
                null_mut(),
            )
        });
        let major = gss.check(WHAT, major, minor)?;
        if major & CONTINUE_NEEDED != 0 {
            if answer.is_empty() {
                // If a token of Kerberos has an unknown type, the library says that it expects another token.
                return Err(Error { major: DEFECTIVE_TOKEN, ..Error::unfit(WHAT, NO_TOKEN) });
            }
            return Ok(Progress::More { unfinished: self, token: answer });
        }
        done(WHAT, self.raw, flags, answer)
    }
}

/// The error for bytes that begin no token.
const NO_TOKEN: &str = "the token does not begin a context of Kerberos";
/// GSS_S_DEFECTIVE_TOKEN.
const DEFECTIVE_TOKEN: Word = 9 << 16;

/// Whether a first token names the Kerberos mechanism (RFC 2743 section 3.1). The library would also take an empty
/// token, or one of a mechanism that negotiates, and begin to negotiate.
fn is_kerberos(token: &[u8]) -> bool {
    /// The most bytes of a length, after the first one.
    const MAX_LENGTH_OCTETS: usize = 4;
    let [0x60, length, rest @ ..] = token else { return false };
    let rest = match length {
        0..=0x7f => Some(rest),
        _ => Some(usize::from(length & 0x7f)).filter(|octets| *octets <= MAX_LENGTH_OCTETS).and_then(|n| rest.get(n..)),
    };
    match rest {
        Some([6, length, rest @ ..]) => {
            usize::from(*length) == KERBEROS_OCTETS.len() && rest.starts_with(KERBEROS_OCTETS)
        }
        _ => false,
    }
}

/// A context that is made, if it has the properties that RPCSEC_GSS needs.
fn done<T>(what: &'static str, raw: Owned, flags: Word, token: Octets) -> Result<Progress<T>, Error> {
    if flags & INTEGRITY == 0 {
        return Err(Error::unfit(what, "it cannot sign messages"));
    }
    Ok(Progress::Done { context: Context::new(raw), token })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(mechanism: &[u8], length: &[u8]) -> Vec<u8> {
        [&[0x60], length, &[6, mechanism.len() as u8], mechanism, b"what the mechanism says"].concat()
    }

    #[test]
    fn only_tokens_of_kerberos_reach_the_library() {
        for length in [&[34][..], &[0x81, 200], &[0x82, 2, 3], &[0x84, 0, 0, 2, 3]] {
            let good = token(KERBEROS_OCTETS, length);
            assert!(is_kerberos(&good), "{length:?}");
            let named = 3 + length.len() + KERBEROS_OCTETS.len();
            assert!((0..named).all(|len| !is_kerberos(&good[..len])), "cut");
            assert!(is_kerberos(&good[..named]), "what follows is Kerberos' own");
        }
        let negotiation = [0x2b, 6, 1, 5, 5, 2];
        let longer = [KERBEROS_OCTETS, &[1]].concat();
        for other in [&negotiation[..], &longer, &KERBEROS_OCTETS[..8]] {
            assert!(!is_kerberos(&token(other, &[34])), "{other:?}");
        }
        assert!(!is_kerberos(&token(KERBEROS_OCTETS, &[0x85, 0, 0, 0, 2, 3])), "a length of more than 32 bits");
    }
}
