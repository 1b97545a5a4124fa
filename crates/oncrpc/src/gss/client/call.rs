//! A call in a client's context, and its transmissions.

use super::{
    House, SignedLater,
    context::{Context, Place},
};
use crate::{
    AuthStat, CallId, ClientTransport, ContextError, OpaqueAuth, Protected, Signed,
    gss::{Failure, RPCSEC_GSS, body, credential::Procedure},
};
use rpcrdma_xdr::{Decoder, Payload};
use smallvec::SmallVec;
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// How many transmissions of a call are remembered, as its reply may answer any of them. Each is on a connection of its
/// own: what answers an older one than these has been under way for as long as eight reconnects.
const MAX_TRANSMISSIONS: usize = 8;

/// A call in a context. GSS-2203-5.3.3.1-f.
pub(super) struct GssCall {
    house: Arc<House>,
    context: Arc<Context>,
    id: CallId,
    /// Without protection: each transmission has its own.
    args: Payload,
    sent: Mutex<Sent>,
}

/// The transmissions of a call.
struct Sent {
    place: Place,
    /// The last numbers, the newest at the end. Empty before the first.
    numbers: SmallVec<[u32; 2]>,
}

impl GssCall {
    pub(super) fn new(house: Arc<House>, place: Place, id: CallId, args: Payload) -> Self {
        let context = place.context.clone();
        Self { house, context, id, args, sent: Mutex::new(Sent { place, numbers: SmallVec::new() }) }
    }
}

impl Signed for GssCall {
    fn sign(&self) -> Result<Protected, ContextError> {
        let service = self.house.service;
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut live = self.context.live();
        let number = match sent.numbers.is_empty() {
            true => sent.place.number(),
            false => sent.place.renew(&mut live)?,
        };
        let failed = |failure: Failure| ContextError::new(failure.text);
        let credential = self.context.credential(Procedure::Data, number, service);
        let header = live.sign(self.id, credential).map_err(failed)?;
        let body = body::close(&mut *live.protection, service, number, self.args.clone()).map_err(failed)?;
        drop(live);
        if sent.numbers.len() == MAX_TRANSMISSIONS {
            sent.numbers.remove(0);
        }
        sent.numbers.push(number);
        Ok(Protected { credential: header.credential, verifier: header.verifier, body })
    }

    /// GSS-2203-5.3.3.2-b, GSS-2203-5.3.3.2-c.
    fn unwrap(&self, verifier: &OpaqueAuth, results: Option<Decoder>) -> Result<Option<Decoder>, AuthStat> {
        if verifier.flavour != RPCSEC_GSS {
            return Err(AuthStat::BAD_VERIFIER);
        }
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut live = self.context.live();
        let mut numbers = sent.numbers.iter().rev();
        let answered =
            numbers.find(|number| live.protection.verify(&number.to_be_bytes(), &verifier.body).is_ok()).copied();
        let number = answered.ok_or(AuthStat::INVALID_RESPONSE)?;
        let open = |results| body::open(&mut *live.protection, self.house.service, number, results);
        results.map(open).transpose().map_err(|_| AuthStat::INVALID_RESPONSE)
    }

    fn renew(&self, transport: &Arc<dyn ClientTransport>) -> SignedLater {
        self.house.forget(&self.context);
        self.house.later(self.id, self.args.clone(), transport)
    }
}

impl fmt::Debug for GssCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GssCall").field(&self.id).finish()
    }
}
