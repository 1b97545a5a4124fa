//! A call in a client's context, and its transmissions.

use super::{
    House, SignedLater,
    context::{Context, Place},
};
use crate::{
    AuthStat, CallId, ClientTransport, ContextError, OpaqueAuth, Protected, Signed,
    gss::{
        Failure, body,
        credential::{Procedure, sign},
        transmissions::Transmissions,
    },
};
use rpcrdma_xdr::{Decoder, Payload};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// A call in a context. GSS-2203-5.3.3.1-f.
pub(super) struct GssCall {
    house: Arc<House>,
    context: Arc<Context>,
    id: CallId,
    /// The arguments without protection: each transmission has its own.
    args: Payload,
    sent: Mutex<Sent>,
}

/// The transmissions of a call.
struct Sent {
    place: Place,
    numbers: Transmissions,
}

impl GssCall {
    pub(super) fn new(house: Arc<House>, place: Place, id: CallId, args: Payload) -> Self {
        let context = place.context.clone();
        Self { house, context, id, args, sent: Mutex::new(Sent { place, numbers: Transmissions::default() }) }
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
        let header = sign(&mut *live.protection, self.id, credential).map_err(failed)?;
        let body = body::close(&mut *live.protection, service, number, self.args.clone()).map_err(failed)?;
        drop(live);
        sent.numbers.push(number);
        Ok(Protected { credential: header.credential, verifier: header.verifier, body })
    }

    fn unwrap(&self, verifier: &OpaqueAuth, results: Option<Decoder>) -> Result<Option<Decoder>, AuthStat> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut live = self.context.live();
        sent.numbers.unwrap(&mut *live.protection, self.house.service, verifier, results)
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
