//! Kerberos: contexts, and tokens and calls that were refused.

use super::MEMORY_INTERVAL;
use metrics::{counter, describe_counter, describe_gauge, gauge};
use rpcrdma_oncrpc::gss::{AcceptGss, Refused};
use std::sync::Arc;

/// Updates the number of contexts, for as long as it is polled; does nothing without Kerberos. New and refused contexts
/// are counted where they happen.
pub(in crate::server) fn watch_contexts(flavour: Option<Arc<AcceptGss>>) -> impl Future<Output = ()> {
    describe_gauge!("rpcrdma_gss_contexts", "Contexts of RPCSEC_GSS: in use, and those that wait for another token");
    describe_gauge!("rpcrdma_gss_waiting", "Tokens of RPCSEC_GSS, and users to be looked up, that wait for their turn");
    describe_counter!("rpcrdma_gss_contexts_made_total", "Contexts of RPCSEC_GSS that were made");
    describe_counter!("rpcrdma_gss_refused_total", "Tokens and calls of RPCSEC_GSS that were refused, by reason");
    describe_counter!("rpcrdma_gss_calls_dropped_total", "Calls whose sequence number was seen before or is too old");
    counter!("rpcrdma_gss_contexts_made_total").increment(0);
    counter!("rpcrdma_gss_calls_dropped_total").increment(0);
    for reason in Refused::WORDS {
        counter!("rpcrdma_gss_refused_total", "reason" => reason).increment(0);
    }
    async move {
        loop {
            let (finished, unfinished) = flavour.as_ref().map_or((0, 0), |flavour| flavour.contexts());
            gauge!("rpcrdma_gss_contexts", "state" => "finished").set(finished as f64);
            gauge!("rpcrdma_gss_contexts", "state" => "unfinished").set(unfinished as f64);
            let (tokens, users) = flavour.as_ref().map_or((0, 0), |flavour| flavour.waiting());
            gauge!("rpcrdma_gss_waiting", "for" => "token").set(tokens as f64);
            gauge!("rpcrdma_gss_waiting", "for" => "user").set(users as f64);
            tokio::time::sleep(MEMORY_INTERVAL).await;
        }
    }
}
