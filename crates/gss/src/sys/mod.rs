//! The GSS-API as C has it (RFC 2744 appendix A): structures, constants, and the functions, which are looked up at run
//! time.
//!
//! Nothing here is safe to call. The modules above wrap each kind of object in a type that owns it.

mod library;

pub(crate) use library::Library;

use std::{
    ffi::{c_char, c_int, c_void},
    ptr::null_mut,
};

/// A status, a set of flags or a number of seconds: 32 bits without a sign.
pub(crate) type Word = u32;

/// Types that are known only by their address.
macro_rules! opaque {
    ($(#[$meta:meta] $name:ident)*) => {
        $(
            #[$meta]
            #[repr(C)]
            pub(crate) struct $name {
                _private: [u8; 0],
            }
        )*
    };
}

opaque! {
    /// Behind `gss_name_t`.
    RawName
    /// Behind `gss_cred_id_t`.
    RawCredential
    /// Behind `gss_ctx_id_t`.
    RawContext
}

/// `gss_buffer_desc`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawBuffer {
    pub(crate) length: usize,
    pub(crate) value: *mut c_void,
}

impl RawBuffer {
    /// A buffer without bytes, for the library to fill.
    pub(crate) const EMPTY: Self = Self { length: 0, value: null_mut() };

    /// A buffer that lends `octets` to the library, which only reads them.
    pub(crate) fn lend(octets: &[u8]) -> Self {
        Self { length: octets.len(), value: octets.as_ptr().cast_mut().cast() }
    }
}

/// `gss_OID_desc`: a name among names of mechanisms and of kinds of names.
#[repr(C)]
pub(crate) struct Oid {
    length: Word,
    elements: *const c_void,
}

// SAFETY: all are constants, and nothing writes to what they point to.
unsafe impl Sync for Oid {}

impl Oid {
    const fn new(octets: &'static [u8]) -> Self {
        Self { length: octets.len() as Word, elements: octets.as_ptr().cast() }
    }

    /// As the library's functions take it, which do not write to it.
    pub(crate) const fn as_ptr(&'static self) -> *mut Oid {
        std::ptr::from_ref(self).cast_mut()
    }
}

/// The Kerberos mechanism, 1.2.840.113554.1.2.2 (RFC 4121 section 1).
pub(crate) const KERBEROS_OCTETS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];
pub(crate) static KERBEROS: Oid = Oid::new(KERBEROS_OCTETS);
/// `service@host`, 1.2.840.113554.1.2.1.4 (RFC 2743 section 4.1).
pub(crate) static HOST_SERVICE: Oid = Oid::new(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 1, 4]);
/// A whole principal, 1.2.840.113554.1.2.2.1 (RFC 1964 section 2.1.1).
pub(crate) static PRINCIPAL: Oid = Oid::new(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2, 1]);

/// `gss_OID_set_desc`.
#[repr(C)]
pub(crate) struct OidSet {
    pub(crate) count: usize,
    pub(crate) elements: *mut Oid,
}

/// `gss_key_value_element_desc`.
#[repr(C)]
pub(crate) struct StoreElement {
    pub(crate) key: *const c_char,
    pub(crate) value: *const c_char,
}

/// `gss_key_value_set_desc`: where credentials come from.
#[repr(C)]
pub(crate) struct Store {
    pub(crate) count: Word,
    pub(crate) elements: *const StoreElement,
}

/// `gss_cred_usage_t`.
pub(crate) const INITIATE: c_int = 1;
pub(crate) const ACCEPT: c_int = 2;

/// The initiator wants the acceptor to prove who it is.
pub(crate) const MUTUAL: Word = 2;
/// Messages can be sealed.
pub(crate) const CONFIDENTIALITY: Word = 16;
/// Messages can be signed.
pub(crate) const INTEGRITY: Word = 32;

/// A lifetime without end.
pub(crate) const INDEFINITE: Word = Word::MAX;
/// The usual way of protection.
pub(crate) const DEFAULT_PROTECTION: Word = 0;

/// The bits of a major status that show an error, in the call or in the routine (RFC 2744 section 3.9.1).
pub(crate) const ERRORS: Word = 0xffff_0000;
/// The bit of a major status without an error that means: the other end has to send another token.
pub(crate) const CONTINUE_NEEDED: Word = 1;

/// Whose status `gss_display_status` explains.
pub(crate) const OF_GSS: c_int = 1;
pub(crate) const OF_MECHANISM: c_int = 2;
