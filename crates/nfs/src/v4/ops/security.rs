//! The security that a file requires: SECINFO, SECINFO_NO_NAME (RFC 8881 sections 18.29, 18.45).

use crate::v4::{List, Name, Opaque};

/// The most octets of an object id.
pub const MAX_OID_BYTES: usize = 128;

/// The most flavours of one file.
pub const MAX_FLAVOURS: usize = 32;

xdr_enum! {
    /// How RPCSEC_GSS protects a call (`rpc_gss_svc_t`).
    pub enum GssService: "service of RPCSEC_GSS" {
        /// No security.
        None = 1,
        /// Against changes.
        Integrity = 2,
        /// Against readers too.
        Privacy = 3,
    }

    /// The file that SECINFO_NO_NAME asks about (`secinfo_style4`).
    pub enum SecInfoStyle: "style of SECINFO_NO_NAME" {
        /// The current one.
        Current = 0,
        /// The directory of the current one.
        Parent = 1,
    }
}

xdr_union! {
    /// A flavour of security (`secinfo4`).
    pub enum Flavour: "security flavour" {
        /// No protection.
        None = 0,
        /// Numbers of user and groups.
        Sys = 1,
        /// RPCSEC_GSS in this form.
        Gss(info: GssFlavour) = 6,
    } else {
        /// Another, by number.
        Other
    }
}

xdr_struct! {
    /// A form of RPCSEC_GSS (`rpcsec_gss_info`).
    pub struct GssFlavour {
        /// The mechanism's object id.
        pub oid: Opaque<MAX_OID_BYTES>,
        /// Quality of protection.
        pub quality: u32,
        /// The service.
        pub service: GssService,
    }

    /// SECINFO: asks for the flavours of a name in the current directory.
    pub struct SecInfo {
        /// The name.
        pub name: Name,
    }

    /// SECINFO_NO_NAME: asks for the flavours of the current file or its directory.
    #[derive(Copy)]
    pub struct SecInfoNoName {
        /// The file or its directory.
        pub style: SecInfoStyle,
    }

    /// What SECINFO and SECINFO_NO_NAME return.
    pub struct SecInfoOk {
        /// The flavours, best first.
        pub flavours: List<Flavour, MAX_FLAVOURS>,
    }
}
