//! The transmissions of one call: each has a number of its own, and the reply may answer any of them.

use super::{GssService, Protection, RPCSEC_GSS, body};
use crate::{AuthStat, OpaqueAuth};
use rpcrdma_xdr::Decoder;
use smallvec::SmallVec;

/// How many transmissions are remembered. Each is on a connection of its own: a reply to an older one would have been
/// under way during eight reconnects.
const MAX_TRANSMISSIONS: usize = 8;

/// The last numbers of a call, the newest at the end. None before the first transmission. GSS-2203-5.3.3.1-f.
#[derive(Debug, Default)]
pub(super) struct Transmissions(SmallVec<[u32; 2]>);

impl Transmissions {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes that the call goes with this number.
    pub(super) fn push(&mut self, number: u32) {
        if self.0.len() == MAX_TRANSMISSIONS {
            self.0.remove(0);
        }
        self.0.push(number);
    }

    /// Checks a reply's verifier, and takes the protection from its results. GSS-2203-5.3.3.2-b, GSS-2203-5.3.3.2-c.
    pub(super) fn unwrap(
        &self,
        protection: &mut dyn Protection,
        service: GssService,
        verifier: &OpaqueAuth,
        results: Option<Decoder>,
    ) -> Result<Option<Decoder>, AuthStat> {
        if verifier.flavour != RPCSEC_GSS {
            return Err(AuthStat::BAD_VERIFIER);
        }
        let mut numbers = self.0.iter().rev();
        let answered = numbers.find(|number| protection.verify(&number.to_be_bytes(), &verifier.body).is_ok()).copied();
        let number = answered.ok_or(AuthStat::INVALID_RESPONSE)?;
        let open = |results| body::open(protection, service, number, results);
        results.map(open).transpose().map_err(|_| AuthStat::INVALID_RESPONSE)
    }
}
