//! The functions of the library, found when they are first asked for. It stays loaded for the life of the process: its
//! mechanisms keep state that cannot be unloaded.

use super::{Oid, OidSet, RawBuffer, RawContext, RawCredential, RawName, Store, Word};
use crate::LoadError;
use std::{
    error::Error,
    ffi::{c_int, c_void},
    sync::OnceLock,
};

/// The library's name, whose number fixes its interface.
const FILE: &str = "libgssapi_krb5.so.2";

macro_rules! functions {
    ($(fn $name:ident($($type:ty),*);)*) => {
        /// The functions and variables that we use. The types are those of RFC 2744, and of MIT's gssapi_ext.h.
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) -> Word,)*
        }

        impl Library {
            fn load(file: &str) -> Result<Self, LoadError> {
                let failed = |error: libloading::Error| LoadError { reason: reason(&error) };
                // SAFETY: the library's initialisers run; MIT's only set up its own state.
                let library = unsafe { libloading::Library::new(file) }.map_err(failed)?;
                // Never unloaded: see above.
                let library: &'static libloading::Library = Box::leak(Box::new(library));
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is that of the function's declaration.
                        *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }.map_err(failed)?
                    },)*
                })
            }
        }
    };
}

functions! {
    fn gss_import_name(*mut Word, *const RawBuffer, *mut Oid, *mut *mut RawName);
    fn gss_display_name(*mut Word, *mut RawName, *mut RawBuffer, *mut *mut Oid);
    fn gss_release_name(*mut Word, *mut *mut RawName);
    fn gss_localname(*mut Word, *mut RawName, *mut Oid, *mut RawBuffer);
    fn gss_acquire_cred_from(
        *mut Word, *mut RawName, Word, *mut OidSet, c_int, *const Store, *mut *mut RawCredential, *mut *mut OidSet,
        *mut Word
    );
    fn gss_inquire_cred(*mut Word, *mut RawCredential, *mut *mut RawName, *mut Word, *mut c_int, *mut *mut OidSet);
    fn gss_release_cred(*mut Word, *mut *mut RawCredential);
    fn gss_init_sec_context(
        *mut Word, *mut RawCredential, *mut *mut RawContext, *mut RawName, *mut Oid, Word, Word, *mut c_void,
        *const RawBuffer, *mut *mut Oid, *mut RawBuffer, *mut Word, *mut Word
    );
    fn gss_accept_sec_context(
        *mut Word, *mut *mut RawContext, *mut RawCredential, *const RawBuffer, *mut c_void, *mut *mut RawName,
        *mut *mut Oid, *mut RawBuffer, *mut Word, *mut Word, *mut *mut RawCredential
    );
    fn gss_delete_sec_context(*mut Word, *mut *mut RawContext, *mut RawBuffer);
    fn gss_inquire_context(
        *mut Word, *mut RawContext, *mut *mut RawName, *mut *mut RawName, *mut Word, *mut *mut Oid, *mut Word,
        *mut c_int, *mut c_int
    );
    fn gss_context_time(*mut Word, *mut RawContext, *mut Word);
    fn gss_get_mic(*mut Word, *mut RawContext, Word, *const RawBuffer, *mut RawBuffer);
    fn gss_verify_mic(*mut Word, *mut RawContext, *const RawBuffer, *const RawBuffer, *mut Word);
    fn gss_wrap(*mut Word, *mut RawContext, c_int, Word, *const RawBuffer, *mut c_int, *mut RawBuffer);
    fn gss_unwrap(*mut Word, *mut RawContext, *const RawBuffer, *mut RawBuffer, *mut c_int, *mut Word);
    fn gss_release_buffer(*mut Word, *mut RawBuffer);
    fn gss_display_status(*mut Word, Word, c_int, *mut Oid, *mut Word, *mut RawBuffer);
}

impl Library {
    /// The library, loaded now or before.
    pub(crate) fn get() -> Result<&'static Library, LoadError> {
        static LOADED: OnceLock<Result<Library, LoadError>> = OnceLock::new();
        LOADED.get_or_init(|| Self::load(FILE)).as_ref().map_err(Clone::clone)
    }
}

/// The reason that the system gives. The error itself says only which of its functions has failed.
fn reason(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_the_package_that_has_it() {
        let error = Library::load("libgssapi_krb5.so.none").err().unwrap();
        let text = error.to_string();
        assert!(text.contains("libgssapi_krb5.so.none") && text.contains("libgssapi-krb5-2"), "{text}");
    }

    #[test]
    fn a_library_without_the_functions_is_refused() {
        let error = Library::load("libc.so.6").err().unwrap();
        assert!(error.to_string().contains("gss_"), "{error}");
    }
}
