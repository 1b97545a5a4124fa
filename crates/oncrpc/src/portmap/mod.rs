//! A portmapper inside the program: versions 2, 3 and 4 of program 100000 (RFC 1833), for a table that does not change.
//!
//! It says where this server's programs are, on a machine without rpcbind. It registers nothing, and it calls no
//! program for a caller: attackers have abused portmappers for that.
//!
//! The table is limited and owned by the services. An answer is built from it and from the address by which the caller
//! has reached the portmapper. Malformed calls are answered as RFC 5531 says; nothing here can fail.

mod services;
mod statistics;
mod table;
mod transport_address;
mod version2;
mod version3;

pub use table::{Entry, MAX_ENTRIES, Table, TooManyEntries};

use crate::{Router, Service};
use rpcrdma_env::Env;
use services::Versions;
use std::sync::Arc;

/// The versions of the program that are served.
pub const VERSIONS: [u32; 3] = [2, 3, 4];

/// The procedures, by their numbers. Number 3 is GETADDR from version 3 on, number 5 BCAST in version 4.
pub mod procedure {
    /// Registers a program.
    pub const SET: u32 = 1;
    /// Takes a registration back.
    pub const UNSET: u32 = 2;
    /// Where a program is: its port in version 2 (GETPORT), its address in the others.
    pub const GETADDR: u32 = 3;
    /// Lists all.
    pub const DUMP: u32 = 4;
    /// Calls a program for the caller.
    pub const CALLIT: u32 = 5;
    /// The time of day.
    pub const GETTIME: u32 = 6;
    /// A universal address in the host's own form.
    pub const UADDR2TADDR: u32 = 7;
    /// The reverse.
    pub const TADDR2UADDR: u32 = 8;
    /// Where exactly this version of a program is.
    pub const GETVERSADDR: u32 = 9;
    /// Calls a program for the caller, and returns errors.
    pub const INDIRECT: u32 = 10;
    /// Where a program is, over each transport.
    pub const GETADDRLIST: u32 = 11;
    /// How often each call was made.
    pub const GETSTAT: u32 = 12;

    /// The name of a procedure of a version, if there is one.
    pub fn name(version: u32, procedure: u32) -> Option<&'static str> {
        Some(match (version, procedure) {
            (2..=4, 0) => "NULL",
            (2..=4, SET) => "SET",
            (2..=4, UNSET) => "UNSET",
            (2, GETADDR) => "GETPORT",
            (3..=4, GETADDR) => "GETADDR",
            (2..=4, DUMP) => "DUMP",
            (2..=3, CALLIT) => "CALLIT",
            (4, CALLIT) => "BCAST",
            (3..=4, GETTIME) => "GETTIME",
            (3..=4, UADDR2TADDR) => "UADDR2TADDR",
            (3..=4, TADDR2UADDR) => "TADDR2UADDR",
            (4, GETVERSADDR) => "GETVERSADDR",
            (4, INDIRECT) => "INDIRECT",
            (4, GETADDRLIST) => "GETADDRLIST",
            (4, GETSTAT) => "GETSTAT",
            _ => return None,
        })
    }
}

/// All versions of the program, for this table.
pub fn services(table: Table, env: &Env) -> Vec<Arc<dyn Service>> {
    Versions::all(table, env).map(|service| Arc::new(service) as Arc<dyn Service>).collect()
}

/// A router with nothing but the portmapper. It keeps no replies: every call may be executed again.
pub fn router(table: Table, env: &Env) -> Router {
    let router = Router::new(env).with_duplicate_cache_bytes(0);
    services(table, env).into_iter().fold(router, Router::with_service)
}

#[cfg(test)]
mod tests;
