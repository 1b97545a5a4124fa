//! Structures and constants of libibverbs, as far as this crate uses them.
//!
//! Structures that the library allocates and that end in private fields are declared up to the last field that this
//! crate uses: it reaches them only through the library's pointers.
//!
//! Made from rdma-core's `infiniband/verbs.h` under the OpenIB.org BSD option, whose notice follows.
//
// Copyright (c) 2004, 2005 Topspin Communications.  All rights reserved.
// Copyright (c) 2004, 2011-2012 Intel Corporation.  All rights reserved.
// Copyright (c) 2005, 2006, 2007 Cisco Systems, Inc.  All rights reserved.
// Copyright (c) 2005 PathScale, Inc.  All rights reserved.
// Copyright (c) 2020 Intel Corporation.  All rights reserved.
//
// This software is available to you under a choice of one of two
// licenses.  You may choose to be licensed under the terms of the GNU
// General Public License (GPL) Version 2, available from the file
// COPYING in the main directory of this source tree, or the
// OpenIB.org BSD license below:
//
//     Redistribution and use in source and binary forms, with or
//     without modification, are permitted provided that the following
//     conditions are met:
//
//      - Redistributions of source code must retain the above
//        copyright notice, this list of conditions and the following
//        disclaimer.
//
//      - Redistributions in binary form must reproduce the above
//        copyright notice, this list of conditions and the following
//        disclaimer in the documentation and/or other materials
//        provided with the distribution.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND,
// EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
// MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
// NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS
// BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN
// ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
// CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
// SOFTWARE.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `struct ibv_srq`, of which only the address matters.
#[repr(C)]
pub(crate) struct SharedReceiveQueue {
    _private: [u8; 0],
}

/// `struct ibv_srq_init_attr`, with its `struct ibv_srq_attr`.
#[repr(C)]
pub(crate) struct SharedReceiveQueueInit {
    pub(crate) srq_context: *mut c_void,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}

/// `struct ibv_async_event`. `event_type` tells what `element` is.
#[repr(C)]
pub(crate) struct AsyncEvent {
    pub(crate) element: *mut c_void,
    pub(crate) event_type: c_int,
}

/// `struct ibv_device`.
#[repr(C)]
pub(crate) struct Device {
    pub(crate) ops: [*mut c_void; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
}

/// `struct ibv_context_ops`: the functions that the headers' inline functions call.
#[repr(C)]
pub(crate) struct ContextOps {
    pub(crate) before_alloc_mw: [*mut c_void; 7],
    pub(crate) alloc_mw: Option<unsafe extern "C" fn(*mut ProtectionDomain, c_int) -> *mut Window>,
    pub(crate) bind_mw: *mut c_void,
    pub(crate) dealloc_mw: Option<unsafe extern "C" fn(*mut Window) -> c_int>,
    pub(crate) create_cq: *mut c_void,
    pub(crate) poll_cq: Option<unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut WorkCompletion) -> c_int>,
    pub(crate) req_notify_cq: Option<unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int>,
    pub(crate) before_post_srq_recv: [*mut c_void; 7],
    pub(crate) post_srq_recv:
        Option<unsafe extern "C" fn(*mut SharedReceiveQueue, *mut ReceiveWork, *mut *mut ReceiveWork) -> c_int>,
    pub(crate) before_post_send: [*mut c_void; 4],
    pub(crate) post_send: Option<unsafe extern "C" fn(*mut QueuePair, *mut SendWork, *mut *mut SendWork) -> c_int>,
    pub(crate) post_recv:
        Option<unsafe extern "C" fn(*mut QueuePair, *mut ReceiveWork, *mut *mut ReceiveWork) -> c_int>,
    pub(crate) after_post_recv: [*mut c_void; 5],
}

/// `struct ibv_context`: an open device.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut Device,
    pub(crate) ops: ContextOps,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
}

/// `struct ibv_device_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DeviceAttributes {
    pub(crate) fw_ver: [c_char; 64],
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_ee_init_rd_atom: c_int,
    pub(crate) atomic_cap: c_int,
    pub(crate) max_ee: c_int,
    pub(crate) max_rdd: c_int,
    pub(crate) max_mw: c_int,
    pub(crate) max_raw_ipv6_qp: c_int,
    pub(crate) max_raw_ethy_qp: c_int,
    pub(crate) max_mcast_grp: c_int,
    pub(crate) max_mcast_qp_attach: c_int,
    pub(crate) max_total_mcast_qp_attach: c_int,
    pub(crate) max_ah: c_int,
    pub(crate) max_fmr: c_int,
    pub(crate) max_map_per_fmr: c_int,
    pub(crate) max_srq: c_int,
    pub(crate) max_srq_wr: c_int,
    pub(crate) max_srq_sge: c_int,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PortAttributes {
    pub(crate) state: c_int,
    pub(crate) max_mtu: c_int,
    pub(crate) active_mtu: c_int,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
}

/// `union ibv_gid`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(crate) struct Gid {
    pub(crate) raw: [u8; 16],
}

/// `struct ibv_pd`.
#[repr(C)]
pub(crate) struct ProtectionDomain {
    pub(crate) context: *mut Context,
    pub(crate) handle: u32,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(crate) struct MemoryRegion {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut ProtectionDomain,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// `struct ibv_mw`.
#[repr(C)]
pub(crate) struct Window {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut ProtectionDomain,
    pub(crate) rkey: u32,
    pub(crate) handle: u32,
    pub(crate) kind: c_int,
}

/// `struct ibv_mw_bind_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BindInfo {
    pub(crate) mr: *mut MemoryRegion,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) mw_access_flags: c_uint,
}

/// The last union of `struct ibv_send_wr`, as a bind uses it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BindWork {
    pub(crate) mw: *mut Window,
    pub(crate) rkey: u32,
    pub(crate) bind_info: BindInfo,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Slice {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// `struct ibv_send_wr`. Of its unions only the members that this crate uses are declared; the rest is padding.
#[repr(C)]
pub(crate) struct SendWork {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut SendWork,
    pub(crate) sg_list: *mut Slice,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_int,
    pub(crate) send_flags: c_uint,
    pub(crate) invalidate_rkey: u32,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    pub(crate) rest_of_wr: [u32; 5],
    pub(crate) qp_type: u32,
    pub(crate) bind: BindWork,
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(crate) struct ReceiveWork {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ReceiveWork,
    pub(crate) sg_list: *mut Slice,
    pub(crate) num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct WorkCompletion {
    pub(crate) wr_id: u64,
    pub(crate) status: c_int,
    pub(crate) opcode: c_int,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) invalidated_rkey: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct QueuePairLimits {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct QueuePairInit {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut CompletionQueue,
    pub(crate) recv_cq: *mut CompletionQueue,
    pub(crate) srq: *mut SharedReceiveQueue,
    pub(crate) cap: QueuePairLimits,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
}

/// `struct ibv_ah_attr`, with its `struct ibv_global_route`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AddressHandle {
    pub(crate) dgid: Gid,
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    /// The end of the inner structure, whose length is a multiple of eight bytes.
    pub(crate) after_route: u8,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
pub(crate) struct QueuePairAttributes {
    pub(crate) qp_state: c_int,
    pub(crate) cur_qp_state: c_int,
    pub(crate) path_mtu: c_int,
    pub(crate) path_mig_state: c_int,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: c_uint,
    pub(crate) cap: QueuePairLimits,
    pub(crate) ah_attr: AddressHandle,
    pub(crate) alt_ah_attr: AddressHandle,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}

/// `struct ibv_qp`.
#[repr(C)]
pub(crate) struct QueuePair {
    pub(crate) context: *mut Context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut ProtectionDomain,
    pub(crate) send_cq: *mut CompletionQueue,
    pub(crate) recv_cq: *mut CompletionQueue,
    pub(crate) srq: *mut SharedReceiveQueue,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(crate) struct CompletionChannel {
    pub(crate) context: *mut Context,
    pub(crate) fd: c_int,
}

/// `struct ibv_cq`.
#[repr(C)]
pub(crate) struct CompletionQueue {
    pub(crate) context: *mut Context,
    pub(crate) channel: *mut CompletionChannel,
}

/// `enum ibv_transport_type`.
pub(crate) const TRANSPORT_IWARP: c_int = 1;
/// `enum ibv_port_state`.
pub(crate) const PORT_ACTIVE: c_int = 4;
/// The link layers of a port.
pub(crate) const LINK_INFINIBAND: u8 = 1;
pub(crate) const LINK_ETHERNET: u8 = 2;
/// `enum ibv_device_cap_flags`.
pub(crate) const DEVICE_WINDOWS_2A: c_uint = 1 << 23;
pub(crate) const DEVICE_WINDOWS_2B: c_uint = 1 << 24;
/// `enum ibv_qp_type`.
pub(crate) const QP_RELIABLE: c_int = 2;
/// `enum ibv_qp_state` and the mask with which `ibv_modify_qp` changes it.
pub(crate) const QP_ERROR: c_int = 6;
pub(crate) const QP_ATTRIBUTE_STATE: c_int = 1;
/// `enum ibv_mw_type`.
pub(crate) const WINDOW_TYPE_2: c_int = 2;
/// `enum ibv_access_flags`.
pub(crate) const ACCESS_LOCAL_WRITE: c_uint = 1;
pub(crate) const ACCESS_REMOTE_WRITE: c_uint = 1 << 1;
pub(crate) const ACCESS_REMOTE_READ: c_uint = 1 << 2;
pub(crate) const ACCESS_BIND: c_uint = 1 << 4;
pub(crate) const ACCESS_ZERO_BASED: c_uint = 1 << 5;
/// `enum ibv_wr_opcode`.
pub(crate) const OP_WRITE: c_int = 0;
pub(crate) const OP_SEND: c_int = 2;
pub(crate) const OP_READ: c_int = 4;
pub(crate) const OP_LOCAL_INVALIDATE: c_int = 7;
pub(crate) const OP_BIND: c_int = 8;
pub(crate) const OP_SEND_INVALIDATE: c_int = 9;
/// `enum ibv_send_flags`.
pub(crate) const SEND_SIGNALED: c_uint = 1 << 1;
pub(crate) const SEND_SOLICITED: c_uint = 1 << 2;
/// `enum ibv_event_type`: the device has failed or is being removed; its port is in use again, or no longer; a queue
/// pair that was stopped takes no more shared receives.
pub(crate) const EVENT_DEVICE_FATAL: c_int = 8;
pub(crate) const EVENT_PORT_ACTIVE: c_int = 9;
pub(crate) const EVENT_PORT_DOWN: c_int = 10;
pub(crate) const EVENT_LAST_RECEIVE: c_int = 16;
/// `enum ibv_wc_flags`.
pub(crate) const COMPLETION_IMMEDIATE: c_uint = 1 << 1;
pub(crate) const COMPLETION_INVALIDATED: c_uint = 1 << 3;
/// `enum ibv_wc_status`.
pub(crate) const STATUS_SUCCESS: c_int = 0;
pub(crate) const STATUS_LOCAL_LENGTH: c_int = 1;
pub(crate) const STATUS_LOCAL_WORK: c_int = 2;
pub(crate) const STATUS_LOCAL_DATAGRAM: c_int = 3;
pub(crate) const STATUS_LOCAL_PROTECTION: c_int = 4;
pub(crate) const STATUS_FLUSHED: c_int = 5;
pub(crate) const STATUS_BIND: c_int = 6;
pub(crate) const STATUS_BAD_RESPONSE: c_int = 7;
pub(crate) const STATUS_LOCAL_ACCESS: c_int = 8;
pub(crate) const STATUS_REMOTE_INVALID: c_int = 9;
pub(crate) const STATUS_REMOTE_ACCESS: c_int = 10;
pub(crate) const STATUS_REMOTE_OPERATION: c_int = 11;
pub(crate) const STATUS_RETRIES: c_int = 12;
pub(crate) const STATUS_NO_RECEIVE: c_int = 13;
pub(crate) const STATUS_DATAGRAM_DOMAIN: c_int = 14;
pub(crate) const STATUS_REMOTE_DATAGRAM: c_int = 15;
pub(crate) const STATUS_REMOTE_ABORT: c_int = 16;
pub(crate) const STATUS_CONTEXT_NUMBER: c_int = 17;
pub(crate) const STATUS_CONTEXT_STATE: c_int = 18;
pub(crate) const STATUS_FATAL: c_int = 19;
pub(crate) const STATUS_NO_RESPONSE: c_int = 20;
pub(crate) const STATUS_GENERAL: c_int = 21;
pub(crate) const STATUS_TAG_MATCHING: c_int = 22;
pub(crate) const STATUS_TAG_RENDEZVOUS: c_int = 23;
