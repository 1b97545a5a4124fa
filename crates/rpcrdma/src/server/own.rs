//! Programs of the embedder's own, at the ports of NFS.

use rpcrdma_env::{BoxFuture, Env};
use rpcrdma_oncrpc::{Begun, CallContext, Handler, Outcome, Router, Service, peek_call};
use rpcrdma_xdr::Stream;
use std::{sync::Arc, task::Context};

/// The embedder's own programs, together with NFS if it is served.
struct Beside {
    own: Router,
    programs: Vec<u32>,
    nfs: Option<Arc<dyn Handler>>,
}

/// The handler of calls at the ports of NFS.
pub(super) fn handler(services: &[Arc<dyn Service>], nfs: Option<Arc<dyn Handler>>, env: &Env) -> Arc<dyn Handler> {
    match nfs {
        Some(nfs) if services.is_empty() => nfs,
        nfs => {
            let programs = services.iter().map(|service| service.program()).collect();
            let own = services.iter().cloned().fold(Router::new(env), Router::with_service);
            Arc::new(Beside { own, programs, nfs })
        }
    }
}

impl Beside {
    fn of(&self, message: &Stream) -> &dyn Handler {
        let is_own = || peek_call(message).is_none_or(|call| self.programs.contains(&call.program));
        match &self.nfs {
            Some(nfs) if !is_own() => &**nfs,
            _ => &self.own,
        }
    }
}

impl Handler for Beside {
    fn handle(&self, context: CallContext, message: Stream) -> BoxFuture<'static, Outcome> {
        self.of(&message).handle(context, message)
    }

    fn begin(&self, context: CallContext, message: Stream, cx: &mut Context<'_>) -> Begun {
        self.of(&message).begin(context, message, cx)
    }
}
