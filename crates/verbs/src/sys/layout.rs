//! Checks that the declarations match rdma-core's headers, if these and a C compiler are installed.

use super::{cm, verbs};
use std::{fmt::Write as _, mem::offset_of, path::Path, process::Command};

/// What the check compares: for each structure its size, unless it is declared only in part, and the offsets of its
/// fields.
struct Layout {
    c: &'static str,
    size: Option<usize>,
    fields: Vec<(&'static str, usize)>,
}

macro_rules! layout {
    ($type:ty, $c:literal, $size:expr, { $($field:ident = $name:literal),* $(,)? }) => {
        Layout { c: $c, size: $size, fields: vec![$(($name, offset_of!($type, $field))),*] }
    };
    (whole $type:ty, $c:literal, $fields:tt) => {
        layout!($type, $c, Some(size_of::<$type>()), $fields)
    };
    (part $type:ty, $c:literal, $fields:tt) => {
        layout!($type, $c, None, $fields)
    };
}

fn layouts() -> Vec<Layout> {
    vec![
        layout!(part verbs::Device, "struct ibv_device", { transport_type = "transport_type", name = "name" }),
        layout!(whole verbs::ContextOps, "struct ibv_context_ops", {
            alloc_mw = "alloc_mw", dealloc_mw = "dealloc_mw", poll_cq = "poll_cq", req_notify_cq = "req_notify_cq",
            post_srq_recv = "post_srq_recv", post_send = "post_send", post_recv = "post_recv",
        }),
        layout!(whole verbs::SharedReceiveQueueInit, "struct ibv_srq_init_attr", {
            srq_context = "srq_context", max_wr = "attr.max_wr", max_sge = "attr.max_sge", srq_limit = "attr.srq_limit",
        }),
        layout!(whole verbs::AsyncEvent, "struct ibv_async_event", {
            element = "element.qp", event_type = "event_type",
        }),
        layout!(part verbs::Context, "struct ibv_context", {
            device = "device", ops = "ops", async_fd = "async_fd", num_comp_vectors = "num_comp_vectors",
        }),
        layout!(whole verbs::DeviceAttributes, "struct ibv_device_attr", {
            max_mr_size = "max_mr_size", vendor_id = "vendor_id", max_qp = "max_qp", max_qp_wr = "max_qp_wr",
            device_cap_flags = "device_cap_flags", max_sge = "max_sge", max_cqe = "max_cqe", max_mr = "max_mr",
            max_qp_rd_atom = "max_qp_rd_atom", max_qp_init_rd_atom = "max_qp_init_rd_atom", max_mw = "max_mw",
            max_srq = "max_srq", max_srq_wr = "max_srq_wr", max_srq_sge = "max_srq_sge",
            phys_port_cnt = "phys_port_cnt",
        }),
        layout!(whole verbs::PortAttributes, "struct ibv_port_attr", {
            state = "state", active_mtu = "active_mtu", gid_tbl_len = "gid_tbl_len", link_layer = "link_layer",
        }),
        layout!(whole verbs::Gid, "union ibv_gid", {}),
        layout!(whole verbs::ProtectionDomain, "struct ibv_pd", {}),
        layout!(whole verbs::MemoryRegion, "struct ibv_mr", { lkey = "lkey", rkey = "rkey" }),
        layout!(whole verbs::Window, "struct ibv_mw", { context = "context", pd = "pd", rkey = "rkey", kind = "type" }),
        layout!(whole verbs::BindInfo, "struct ibv_mw_bind_info", {
            mr = "mr", addr = "addr", length = "length", mw_access_flags = "mw_access_flags",
        }),
        layout!(whole verbs::Slice, "struct ibv_sge", { addr = "addr", length = "length", lkey = "lkey" }),
        layout!(whole verbs::SendWork, "struct ibv_send_wr", {
            wr_id = "wr_id", next = "next", sg_list = "sg_list", num_sge = "num_sge", opcode = "opcode",
            send_flags = "send_flags", invalidate_rkey = "invalidate_rkey", remote_addr = "wr.rdma.remote_addr",
            rkey = "wr.rdma.rkey", qp_type = "qp_type", bind = "bind_mw",
        }),
        layout!(part verbs::BindWork, "struct ibv_send_wr", {}),
        layout!(whole verbs::ReceiveWork, "struct ibv_recv_wr", { sg_list = "sg_list", num_sge = "num_sge" }),
        layout!(whole verbs::WorkCompletion, "struct ibv_wc", {
            wr_id = "wr_id", status = "status", byte_len = "byte_len", invalidated_rkey = "invalidated_rkey",
            wc_flags = "wc_flags", dlid_path_bits = "dlid_path_bits",
        }),
        layout!(whole verbs::QueuePairLimits, "struct ibv_qp_cap", { max_inline_data = "max_inline_data" }),
        layout!(whole verbs::QueuePairInit, "struct ibv_qp_init_attr", {
            send_cq = "send_cq", srq = "srq", cap = "cap", qp_type = "qp_type", sq_sig_all = "sq_sig_all",
        }),
        layout!(whole verbs::AddressHandle, "struct ibv_ah_attr", { dlid = "dlid", port_num = "port_num" }),
        layout!(whole verbs::QueuePairAttributes, "struct ibv_qp_attr", {
            qp_state = "qp_state", cap = "cap", ah_attr = "ah_attr", alt_ah_attr = "alt_ah_attr",
            pkey_index = "pkey_index", rate_limit = "rate_limit",
        }),
        layout!(part verbs::QueuePair, "struct ibv_qp", { context = "context", srq = "srq", qp_num = "qp_num" }),
        layout!(part verbs::CompletionChannel, "struct ibv_comp_channel", { fd = "fd" }),
        layout!(part verbs::CompletionQueue, "struct ibv_cq", { context = "context", channel = "channel" }),
        layout!(whole cm::EventChannel, "struct rdma_event_channel", { fd = "fd" }),
        layout!(whole cm::SocketAddress, "struct sockaddr_storage", {}),
        layout!(part cm::Id, "struct rdma_cm_id", {
            verbs = "verbs", channel = "channel", qp = "qp", source = "route.addr.src_storage",
            destination = "route.addr.dst_storage",
        }),
        layout!(whole cm::ConnectionParameters, "struct rdma_conn_param", {
            private_data_len = "private_data_len", responder_resources = "responder_resources",
            rnr_retry_count = "rnr_retry_count", srq = "srq", qp_num = "qp_num",
        }),
        layout!(part cm::Event, "struct rdma_cm_event", {
            id = "id", listen_id = "listen_id", event = "event", status = "status", conn = "param.conn",
        }),
    ]
}

/// The constants, by their names in C.
fn constants() -> Vec<(&'static str, i64)> {
    vec![
        ("IBV_TRANSPORT_IWARP", verbs::TRANSPORT_IWARP.into()),
        ("IBV_PORT_ACTIVE", verbs::PORT_ACTIVE.into()),
        ("IBV_LINK_LAYER_INFINIBAND", verbs::LINK_INFINIBAND.into()),
        ("IBV_LINK_LAYER_ETHERNET", verbs::LINK_ETHERNET.into()),
        ("IBV_DEVICE_MEM_WINDOW_TYPE_2A", verbs::DEVICE_WINDOWS_2A.into()),
        ("IBV_DEVICE_MEM_WINDOW_TYPE_2B", verbs::DEVICE_WINDOWS_2B.into()),
        ("IBV_QPT_RC", verbs::QP_RELIABLE.into()),
        ("IBV_QPS_ERR", verbs::QP_ERROR.into()),
        ("IBV_QP_STATE", verbs::QP_ATTRIBUTE_STATE.into()),
        ("IBV_MW_TYPE_2", verbs::WINDOW_TYPE_2.into()),
        ("IBV_ACCESS_LOCAL_WRITE", verbs::ACCESS_LOCAL_WRITE.into()),
        ("IBV_ACCESS_REMOTE_WRITE", verbs::ACCESS_REMOTE_WRITE.into()),
        ("IBV_ACCESS_REMOTE_READ", verbs::ACCESS_REMOTE_READ.into()),
        ("IBV_ACCESS_MW_BIND", verbs::ACCESS_BIND.into()),
        ("IBV_ACCESS_ZERO_BASED", verbs::ACCESS_ZERO_BASED.into()),
        ("IBV_WR_RDMA_WRITE", verbs::OP_WRITE.into()),
        ("IBV_WR_SEND", verbs::OP_SEND.into()),
        ("IBV_WR_RDMA_READ", verbs::OP_READ.into()),
        ("IBV_WR_LOCAL_INV", verbs::OP_LOCAL_INVALIDATE.into()),
        ("IBV_WR_BIND_MW", verbs::OP_BIND.into()),
        ("IBV_WR_SEND_WITH_INV", verbs::OP_SEND_INVALIDATE.into()),
        ("IBV_SEND_SIGNALED", verbs::SEND_SIGNALED.into()),
        ("IBV_SEND_SOLICITED", verbs::SEND_SOLICITED.into()),
        ("IBV_EVENT_DEVICE_FATAL", verbs::EVENT_DEVICE_FATAL.into()),
        ("IBV_EVENT_PORT_ACTIVE", verbs::EVENT_PORT_ACTIVE.into()),
        ("IBV_EVENT_PORT_ERR", verbs::EVENT_PORT_DOWN.into()),
        ("IBV_EVENT_QP_LAST_WQE_REACHED", verbs::EVENT_LAST_RECEIVE.into()),
        ("IBV_WC_WITH_IMM", verbs::COMPLETION_IMMEDIATE.into()),
        ("IBV_WC_WITH_INV", verbs::COMPLETION_INVALIDATED.into()),
        ("IBV_WC_SUCCESS", verbs::STATUS_SUCCESS.into()),
        ("IBV_WC_LOC_LEN_ERR", verbs::STATUS_LOCAL_LENGTH.into()),
        ("IBV_WC_LOC_QP_OP_ERR", verbs::STATUS_LOCAL_WORK.into()),
        ("IBV_WC_LOC_EEC_OP_ERR", verbs::STATUS_LOCAL_DATAGRAM.into()),
        ("IBV_WC_LOC_PROT_ERR", verbs::STATUS_LOCAL_PROTECTION.into()),
        ("IBV_WC_WR_FLUSH_ERR", verbs::STATUS_FLUSHED.into()),
        ("IBV_WC_MW_BIND_ERR", verbs::STATUS_BIND.into()),
        ("IBV_WC_BAD_RESP_ERR", verbs::STATUS_BAD_RESPONSE.into()),
        ("IBV_WC_LOC_ACCESS_ERR", verbs::STATUS_LOCAL_ACCESS.into()),
        ("IBV_WC_REM_INV_REQ_ERR", verbs::STATUS_REMOTE_INVALID.into()),
        ("IBV_WC_REM_ACCESS_ERR", verbs::STATUS_REMOTE_ACCESS.into()),
        ("IBV_WC_REM_OP_ERR", verbs::STATUS_REMOTE_OPERATION.into()),
        ("IBV_WC_RETRY_EXC_ERR", verbs::STATUS_RETRIES.into()),
        ("IBV_WC_RNR_RETRY_EXC_ERR", verbs::STATUS_NO_RECEIVE.into()),
        ("IBV_WC_LOC_RDD_VIOL_ERR", verbs::STATUS_DATAGRAM_DOMAIN.into()),
        ("IBV_WC_REM_INV_RD_REQ_ERR", verbs::STATUS_REMOTE_DATAGRAM.into()),
        ("IBV_WC_REM_ABORT_ERR", verbs::STATUS_REMOTE_ABORT.into()),
        ("IBV_WC_INV_EECN_ERR", verbs::STATUS_CONTEXT_NUMBER.into()),
        ("IBV_WC_INV_EEC_STATE_ERR", verbs::STATUS_CONTEXT_STATE.into()),
        ("IBV_WC_FATAL_ERR", verbs::STATUS_FATAL.into()),
        ("IBV_WC_RESP_TIMEOUT_ERR", verbs::STATUS_NO_RESPONSE.into()),
        ("IBV_WC_GENERAL_ERR", verbs::STATUS_GENERAL.into()),
        ("IBV_WC_TM_ERR", verbs::STATUS_TAG_MATCHING.into()),
        ("IBV_WC_TM_RNDV_INCOMPLETE", verbs::STATUS_TAG_RENDEZVOUS.into()),
        ("RDMA_PS_TCP", cm::PORT_SPACE_TCP.into()),
        ("RDMA_CM_EVENT_ADDR_RESOLVED", cm::ADDRESS_RESOLVED.into()),
        ("RDMA_CM_EVENT_ROUTE_RESOLVED", cm::ROUTE_RESOLVED.into()),
        ("RDMA_CM_EVENT_CONNECT_REQUEST", cm::CONNECT_REQUEST.into()),
        ("RDMA_CM_EVENT_REJECTED", cm::REJECTED.into()),
        ("RDMA_CM_EVENT_ESTABLISHED", cm::ESTABLISHED.into()),
        ("RDMA_CM_EVENT_DISCONNECTED", cm::DISCONNECTED.into()),
        ("RDMA_CM_EVENT_DEVICE_REMOVAL", cm::DEVICE_REMOVAL.into()),
    ]
}

/// The headers of Debian's packages libibverbs-dev and librdmacm-dev.
const HEADERS: [&str; 2] = ["/usr/include/infiniband/verbs.h", "/usr/include/rdma/rdma_cma.h"];

#[test]
fn declarations_are_those_of_the_headers() {
    if !HEADERS.iter().all(|header| Path::new(header).exists()) {
        println!("nothing was compared: rdma-core's headers are not installed");
        return;
    }
    let mut code = "#include <stddef.h>\n#include <rdma/rdma_cma.h>\n#include <infiniband/verbs.h>\n".to_owned();
    for Layout { c, size, fields } in layouts() {
        if let Some(size) = size {
            writeln!(code, "_Static_assert(sizeof({c}) == {size}, \"size of {c}\");").unwrap();
        }
        for (field, at) in fields {
            writeln!(code, "_Static_assert(offsetof({c}, {field}) == {at}, \"{field} of {c}\");").unwrap();
        }
    }
    for (name, value) in constants() {
        writeln!(code, "_Static_assert((long long){name} == {value}, \"{name}\");").unwrap();
    }
    let file = std::env::temp_dir().join(format!("rpcrdma-layout-{}.c", std::process::id()));
    std::fs::write(&file, code).unwrap();
    let output =
        Command::new("cc").args(["-fsyntax-only", "-std=gnu11"]).arg(&file).output().expect("there is a C compiler");
    std::fs::remove_file(&file).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
