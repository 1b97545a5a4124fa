//! The program's versions as services: which procedure is answered how.

use super::{Table, VERSIONS, procedure, statistics::Statistics, version2, version3};
use crate::{Answer, CallContext, Netid, Service, TransportKind, rpcbind::RPCBIND_PROGRAM};
use rpcrdma_env::{BoxFuture, Clock, Env};
use rpcrdma_xdr::Decoder;
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// What all versions share.
pub(super) struct Known {
    pub(super) table: Table,
    pub(super) statistics: Statistics,
    pub(super) clock: Arc<dyn Clock>,
}

/// A question: by which address of this machine the caller has reached us, and over which transport.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) version: u32,
    pub(super) local: IpAddr,
    /// The transport by which the question came.
    pub(super) netid: Netid,
}

/// One version.
pub(super) struct Versions {
    version: u32,
    known: Arc<Known>,
}

impl Versions {
    pub(super) fn all(table: Table, env: &Env) -> impl Iterator<Item = Self> {
        let statistics = Statistics::new(&table);
        let known = Arc::new(Known { table, statistics, clock: env.clock.clone() });
        VERSIONS.into_iter().map(move |version| Self { version, known: known.clone() })
    }

    fn answer(&self, context: &CallContext, procedure: u32, args: Decoder) -> Answer {
        if procedure::name(self.version, procedure).is_none() {
            return Answer::ProcUnavail;
        }
        self.known.statistics.called(self.version, procedure);
        let local = context.connection.local.ip().to_canonical();
        let address = SocketAddr::new(local, 0);
        let netid = match context.connection.kind {
            TransportKind::Udp => Netid::udp(&address),
            TransportKind::Rdma => Netid::rdma(&address),
            TransportKind::Tcp => Netid::tcp(&address),
        };
        let asked = Asked { version: self.version, local, netid };
        let answered = match (self.version, procedure) {
            // The portmapper calls no program for a caller, and does not answer such a call: RFC 1833 section 2.2.1.
            (_, procedure::CALLIT | procedure::INDIRECT) => return Answer::Nothing,
            (2, _) => version2::answer(&self.known, asked, procedure, args),
            _ => version3::answer(&self.known, asked, procedure, args),
        };
        answered.unwrap_or_else(Answer::from)
    }
}

impl Service for Versions {
    fn program(&self) -> u32 {
        RPCBIND_PROGRAM
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn is_idempotent(&self, _: u32) -> bool {
        // No procedure changes anything.
        true
    }

    fn call(&self, context: CallContext, procedure: u32, args: Decoder) -> BoxFuture<'static, Answer> {
        Box::pin(std::future::ready(self.answer(&context, procedure, args)))
    }
}
