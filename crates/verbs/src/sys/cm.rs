//! Structures and constants of librdmacm, as far as this crate uses them.
//!
//! Made from rdma-core's `rdma/rdma_cma.h` under the OpenIB.org BSD option, whose notice follows.
//
// Copyright (c) 2005 Voltaire Inc.  All rights reserved.
// Copyright (c) 2005-2014 Intel Corporation.  All rights reserved.
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

use super::verbs;
use std::ffi::{c_int, c_void};

/// `struct rdma_event_channel`.
#[repr(C)]
pub(crate) struct EventChannel {
    pub(crate) fd: c_int,
}

/// A `struct sockaddr_storage`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct SocketAddress {
    pub(crate) octets: [u8; 128],
}

/// `struct rdma_cm_id`, with the beginning of its `struct rdma_route`.
#[repr(C)]
pub(crate) struct Id {
    pub(crate) verbs: *mut verbs::Context,
    pub(crate) channel: *mut EventChannel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut verbs::QueuePair,
    pub(crate) source: SocketAddress,
    pub(crate) destination: SocketAddress,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ConnectionParameters {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

/// `struct rdma_cm_event`, as connections see it: its union may be longer.
#[repr(C)]
pub(crate) struct Event {
    pub(crate) id: *mut Id,
    pub(crate) listen_id: *mut Id,
    pub(crate) event: c_int,
    pub(crate) status: c_int,
    pub(crate) conn: ConnectionParameters,
}

/// `enum rdma_port_space`.
pub(crate) const PORT_SPACE_TCP: c_int = 0x0106;
/// `enum rdma_cm_event_type`.
pub(crate) const ADDRESS_RESOLVED: c_int = 0;
pub(crate) const ROUTE_RESOLVED: c_int = 2;
pub(crate) const CONNECT_REQUEST: c_int = 4;
pub(crate) const REJECTED: c_int = 8;
pub(crate) const ESTABLISHED: c_int = 9;
pub(crate) const DISCONNECTED: c_int = 10;
pub(crate) const DEVICE_REMOVAL: c_int = 11;
/// InfiniBand's reason for a rejection: no program serves that port.
pub(crate) const REJECT_NO_SERVICE: c_int = 8;
