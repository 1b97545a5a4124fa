//! The kind of queue pair that we ask the device for.

use crate::{limits::Limits, sys::verbs};
use std::ptr;

/// We ask for a reliable connection that reports work only if the work asks for it. Receives are its own, or come from
/// a shared queue.
pub(super) fn wanted(
    limits: &Limits,
    completions: *mut verbs::CompletionQueue,
    receives: usize,
    shared_queue: Option<*mut verbs::SharedReceiveQueue>,
) -> verbs::QueuePairInit {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    verbs::QueuePairInit {
        qp_context: ptr::null_mut(),
        send_cq: completions,
        recv_cq: completions,
        srq: shared_queue.unwrap_or(ptr::null_mut()),
        cap: verbs::QueuePairLimits {
            max_send_wr: count(limits.send_queue),
            max_recv_wr: count(receives),
            max_send_sge: count(limits.capabilities.max_gather),
            max_recv_sge: shared_queue.is_none().into(),
            max_inline_data: 0,
        },
        // V2-4.2.1-a, ULB-5.4.1-a
        qp_type: verbs::QP_RELIABLE,
        sq_sig_all: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Config, sys::cm};

    /// proves: V2-4.2.1-a
    #[test]
    fn every_queue_pair_is_a_reliable_connections() {
        /// `IBV_QPT_RC` of the interface, and the port space in which the connection manager makes reliable connections
        /// only.
        const RELIABLE_CONNECTED: i32 = 2;
        const RDMA_PS_TCP: i32 = 0x0106;
        for iwarp in [false, true] {
            let limits = Limits::of_nothing_special(iwarp, &Config::default());
            for shared_queue in [None, Some(ptr::dangling_mut())] {
                let init = wanted(&limits, ptr::null_mut(), 8, shared_queue);
                assert_eq!(init.qp_type, RELIABLE_CONNECTED);
                assert_eq!(
                    (init.srq.is_null(), init.cap.max_recv_sge),
                    (shared_queue.is_none(), shared_queue.is_none().into())
                );
            }
        }
        assert_eq!(cm::PORT_SPACE_TCP, RDMA_PS_TCP);
    }
}
