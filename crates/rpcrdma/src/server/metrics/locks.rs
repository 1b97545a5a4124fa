//! Locks of version 3: what hosts hold and wait for, which hosts are monitored, and the results of notices.

use super::MEMORY_INTERVAL;
use metrics::{counter, describe_counter, describe_gauge, gauge};
use rpcrdma_nfsd::{MonitorCounts, Nfsd, NlmCounts};
use std::sync::Arc;

/// Updates the metrics of the lock manager and of the monitor of hosts, for as long as it is polled.
pub(in crate::server) fn watch_monitor(nfsd: Arc<Nfsd>) -> impl Future<Output = ()> {
    describe_gauge!("rpcrdma_nsm_hosts", "Hosts with locks of NFS version 3 on the list of those to be notified");
    describe_gauge!("rpcrdma_nsm_untold", "Hosts that this server has still to tell of its restart");
    describe_counter!("rpcrdma_nsm_notices_sent_total", "Attempts to tell a host of the restart, by result");
    describe_counter!("rpcrdma_nsm_given_up_total", "Hosts that were not reached in time after the restart");
    describe_counter!(
        "rpcrdma_nsm_notices_received_total",
        "Notices that hosts have restarted, by whether the server accepted them"
    );
    describe_gauge!("rpcrdma_nlm_hosts", "Hosts that have locked something lately by NLM");
    describe_gauge!("rpcrdma_nlm_locks", "Byte ranges that hosts have locked by NLM");
    describe_gauge!("rpcrdma_nlm_shares", "Share reservations of hosts by NLM");
    describe_gauge!("rpcrdma_nlm_waiting", "Locks that hosts wait for by NLM");
    describe_counter!(
        "rpcrdma_nlm_grants_total",
        "Locks that hosts have waited for, by their answers when the server granted them"
    );
    async move {
        while let Some(counts) = nfsd.monitor_counts() {
            show(&counts);
            show_locks(&nfsd.lock_counts().unwrap_or_default());
            tokio::time::sleep(MEMORY_INTERVAL).await;
        }
    }
}

fn show(counts: &MonitorCounts) {
    gauge!("rpcrdma_nsm_hosts").set(counts.hosts as f64);
    gauge!("rpcrdma_nsm_untold").set(counts.untold as f64);
    for (outcome, count) in [("answered", counts.told), ("unanswered", counts.unanswered)] {
        counter!("rpcrdma_nsm_notices_sent_total", "outcome" => outcome).absolute(count);
    }
    counter!("rpcrdma_nsm_given_up_total").absolute(counts.given_up);
    for (believed, count) in [("yes", counts.believed), ("no", counts.disbelieved)] {
        counter!("rpcrdma_nsm_notices_received_total", "believed" => believed).absolute(count);
    }
}

fn show_locks(counts: &NlmCounts) {
    gauge!("rpcrdma_nlm_hosts").set(counts.hosts as f64);
    gauge!("rpcrdma_nlm_locks").set(counts.locks as f64);
    gauge!("rpcrdma_nlm_shares").set(counts.shares as f64);
    gauge!("rpcrdma_nlm_waiting").set(counts.waiting as f64);
    let said = [("taken", counts.granted), ("unwanted", counts.refused), ("unanswered", counts.unanswered)];
    for (outcome, count) in said {
        counter!("rpcrdma_nlm_grants_total", "outcome" => outcome).absolute(count);
    }
}
