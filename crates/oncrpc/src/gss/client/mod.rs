//! The flavour on the client's side: calls are signed in one context, which is made when it is needed (RFC 2203
//! sections 5.2 to 5.4).
//!
//! [`GssAuth`] owns the context; calls share it until they end. While one is made, calls wait for it together. Nothing
//! here runs by itself: a call that waits for a context polls the work that makes it.

mod call;
mod context;
mod establish;

use super::{GssService, Mechanism, Work};
use crate::{CallError, CallId, ClientFlavour, ClientTransport, MAX_AUTH_BODY_BYTES, Signed, SignedLater, Wrapped};
use call::GssCall;
pub use context::AboutContext;
pub(super) use context::Context;
use establish::Establishing;
use futures_util::{FutureExt, future::Shared};
use rpcrdma_env::{BoxFuture, Clock, Env};
use rpcrdma_xdr::Payload;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A context that is being made.
type Making = Shared<BoxFuture<'static, Result<Arc<Context>, CallError>>>;

/// RPCSEC_GSS on the client's side: one principal that calls one service of one server. Cloning shares the context.
#[derive(Clone)]
pub struct GssAuth {
    house: Arc<House>,
}

/// What calls share with the flavour.
struct House {
    mechanism: Arc<dyn Mechanism>,
    work: Arc<dyn Work>,
    clock: Arc<dyn Clock>,
    service: GssService,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    context: Option<Arc<Context>>,
    /// With its number, by which the calls that wait for this context recognise it.
    making: Option<(u64, Making)>,
    made: u64,
}

impl GssAuth {
    /// The flavour over a mechanism, which begins contexts. Tokens are made on the threads of `work`.
    pub fn new(env: &Env, mechanism: Arc<dyn Mechanism>, work: Arc<dyn Work>, service: GssService) -> Self {
        let (clock, state) = (env.clock.clone(), Mutex::default());
        Self { house: Arc::new(House { mechanism, work, clock, service, state }) }
    }

    /// The principal of the present context, if there is one: calls are made in its name.
    pub fn principal(&self) -> Option<Arc<str>> {
        self.house.state().context.as_ref().map(|context| context.principal().clone())
    }

    /// The present context, if there is one.
    pub fn about(&self) -> Option<AboutContext> {
        let now = self.house.clock.now();
        self.house.state().context.as_ref().map(|context| context.about(now))
    }

    /// What the protection of calls covers.
    pub fn service(&self) -> GssService {
        self.house.service
    }

    /// The present context, if it need not be replaced yet.
    pub(super) fn context(&self) -> Option<Arc<Context>> {
        self.house.context()
    }

    /// Destroys the context at the server, and waits until the server has answered or cannot be reached. A later call
    /// makes a new context.
    pub async fn close(&self) {
        let context = self.house.state().context.take();
        if let Some(context) = context
            && let Some(goodbye) = context.destroy()
        {
            // For us it has ended, whatever the server answers.
            let _ = goodbye.await;
        }
    }
}

impl House {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present context, if it can sign another call and need not be replaced.
    fn context(&self) -> Option<Arc<Context>> {
        let now = self.clock.now();
        self.state().context.as_ref().filter(|context| context.is_fresh(now)).cloned()
    }

    /// A context for calls that go over `transport`: the present one, the one that is being made, or a new one.
    async fn context_over(
        self: Arc<Self>,
        call: CallId,
        transport: Arc<dyn ClientTransport>,
    ) -> Result<Arc<Context>, CallError> {
        let (number, making) = {
            let now = self.clock.now();
            let mut state = self.state();
            if let Some(context) = state.context.as_ref().filter(|context| context.is_fresh(now)) {
                return Ok(context.clone());
            }
            match &state.making {
                Some(making) => making.clone(),
                None => {
                    state.made += 1;
                    let establishing = Establishing {
                        mechanism: self.mechanism.clone(),
                        work: self.work.clone(),
                        clock: self.clock.clone(),
                        transport,
                        program: (call.program, call.version),
                    };
                    let making = (state.made, establishing.run().boxed().shared());
                    state.making.insert(making).clone()
                }
            }
        };
        let made = making.await;
        let now = self.clock.now();
        let mut state = self.state();
        if state.making.as_ref().is_some_and(|(current, _)| *current == number) {
            state.making = None;
            if let Ok(context) = &made {
                let replaced = state.context.replace(context.clone());
                drop(state);
                // The last call that holds it sends the message that destroys it, and this may be that call.
                drop(replaced);
                return made;
            }
        }
        match (made, &state.context) {
            // The present context is still valid for a while: the client tries again later.
            (Err(error), Some(context)) if context.postpone(now) => {
                tracing::debug!(%error, "a context cannot be made before the present one ends");
                Ok(context.clone())
            }
            (made, _) => made,
        }
    }

    /// Forgets `context`, after the server has refused it or it cannot sign any more.
    // GSS-2203-5.3.3.3-d, OPS-SEC-f
    fn forget(&self, context: &Arc<Context>) {
        context.lost();
        let mut state = self.state();
        if state.context.as_ref().is_some_and(|current| Arc::ptr_eq(current, context)) {
            state.context = None;
        }
    }

    /// Signs a call once there are a context and room in its window.
    fn later(self: &Arc<Self>, call: CallId, args: Payload, transport: &Arc<dyn ClientTransport>) -> SignedLater {
        let (house, transport) = (self.clone(), transport.clone());
        async move {
            let context = house.clone().context_over(call, transport).await?;
            let place = context.place().await;
            Ok(Arc::new(GssCall::new(house, place, call, args)) as Arc<dyn Signed>)
        }
        .boxed()
    }
}

impl ClientFlavour for GssAuth {
    /// As large as credentials get: the server chooses the length of its handle.
    fn max_credential(&self) -> usize {
        MAX_AUTH_BODY_BYTES
    }

    fn max_call_expansion(&self) -> usize {
        self.house.service.max_call_expansion()
    }

    /// As large as verifiers get.
    fn max_verifier(&self) -> usize {
        MAX_AUTH_BODY_BYTES
    }

    fn max_expansion(&self) -> usize {
        self.house.service.max_expansion()
    }

    fn protects_bodies(&self) -> bool {
        self.house.service.protects_bodies()
    }

    fn wrap(&self, call: &CallId, args: Payload, transport: &Arc<dyn ClientTransport>) -> Wrapped {
        match self.house.context().and_then(|context| context.try_place()) {
            Some(place) => Wrapped::Signed(Arc::new(GssCall::new(self.house.clone(), place, *call, args))),
            None => Wrapped::Later(self.house.later(*call, args, transport)),
        }
    }
}

impl fmt::Debug for GssAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GssAuth").field("service", &self.house.service).field("principal", &self.principal()).finish()
    }
}
