//! The functions of the two libraries, looked up when a program first needs them. The libraries stay loaded for the
//! life of the process: their providers start threads and keep state that cannot be unloaded.

use super::{cm, verbs};
use crate::error::LoadError;
use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    sync::OnceLock,
};

/// A table of functions of one library, with the types of the headers.
macro_rules! functions {
    ($(#[$meta:meta])* $table:ident, $file:literal, { $(fn $name:ident($($type:ty),*) $(-> $result:ty)?;)* }) => {
        $(#[$meta])*
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl $table {
            fn load() -> Result<Self, LoadError> {
                let failed = |error: libloading::Error| LoadError { library: $file, reason: error.to_string() };
                // SAFETY: the library's initialisers run; rdma-core's only set up its own state.
                let library = unsafe { libloading::Library::new($file) }.map_err(failed)?;
                // Never unloaded: see above.
                let library: &'static libloading::Library = Box::leak(Box::new(library));
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is that of the function's declaration in rdma-core's headers, whose
                        // interface is fixed by the number in the library's name.
                        *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }.map_err(failed)?
                    },)*
                })
            }
        }
    };
}

functions! {
    /// libibverbs.
    Verbs, "libibverbs.so.1", {
        fn ibv_query_device(*mut verbs::Context, *mut verbs::DeviceAttributes) -> c_int;
        fn ibv_query_port(*mut verbs::Context, u8, *mut verbs::PortAttributes) -> c_int;
        fn ibv_query_gid(*mut verbs::Context, u8, c_int, *mut verbs::Gid) -> c_int;
        fn ibv_alloc_pd(*mut verbs::Context) -> *mut verbs::ProtectionDomain;
        fn ibv_dealloc_pd(*mut verbs::ProtectionDomain) -> c_int;
        fn ibv_reg_mr(*mut verbs::ProtectionDomain, *mut c_void, usize, c_uint) -> *mut verbs::MemoryRegion;
        fn ibv_dereg_mr(*mut verbs::MemoryRegion) -> c_int;
        fn ibv_create_comp_channel(*mut verbs::Context) -> *mut verbs::CompletionChannel;
        fn ibv_destroy_comp_channel(*mut verbs::CompletionChannel) -> c_int;
        fn ibv_create_cq(*mut verbs::Context, c_int, *mut c_void, *mut verbs::CompletionChannel, c_int) -> *mut verbs::CompletionQueue;
        fn ibv_destroy_cq(*mut verbs::CompletionQueue) -> c_int;
        fn ibv_get_cq_event(*mut verbs::CompletionChannel, *mut *mut verbs::CompletionQueue, *mut *mut c_void) -> c_int;
        fn ibv_ack_cq_events(*mut verbs::CompletionQueue, c_uint);
        fn ibv_create_srq(*mut verbs::ProtectionDomain, *mut verbs::SharedReceiveQueueInit) -> *mut verbs::SharedReceiveQueue;
        fn ibv_destroy_srq(*mut verbs::SharedReceiveQueue) -> c_int;
        fn ibv_get_async_event(*mut verbs::Context, *mut verbs::AsyncEvent) -> c_int;
        fn ibv_ack_async_event(*mut verbs::AsyncEvent);
        fn ibv_modify_qp(*mut verbs::QueuePair, *mut verbs::QueuePairAttributes, c_int) -> c_int;
        fn ibv_destroy_qp(*mut verbs::QueuePair) -> c_int;
    }
}

functions! {
    /// librdmacm.
    ConnectionManager, "librdmacm.so.1", {
        fn rdma_get_devices(*mut c_int) -> *mut *mut verbs::Context;
        fn rdma_free_devices(*mut *mut verbs::Context);
        fn rdma_create_event_channel() -> *mut cm::EventChannel;
        fn rdma_destroy_event_channel(*mut cm::EventChannel);
        fn rdma_create_id(*mut cm::EventChannel, *mut *mut cm::Id, *mut c_void, c_int) -> c_int;
        fn rdma_destroy_id(*mut cm::Id) -> c_int;
        fn rdma_bind_addr(*mut cm::Id, *const c_void) -> c_int;
        fn rdma_resolve_addr(*mut cm::Id, *const c_void, *const c_void, c_int) -> c_int;
        fn rdma_resolve_route(*mut cm::Id, c_int) -> c_int;
        fn rdma_create_qp(*mut cm::Id, *mut verbs::ProtectionDomain, *mut verbs::QueuePairInit) -> c_int;
        fn rdma_connect(*mut cm::Id, *mut cm::ConnectionParameters) -> c_int;
        fn rdma_listen(*mut cm::Id, c_int) -> c_int;
        fn rdma_accept(*mut cm::Id, *mut cm::ConnectionParameters) -> c_int;
        fn rdma_reject(*mut cm::Id, *const c_void, u8) -> c_int;
        fn rdma_disconnect(*mut cm::Id) -> c_int;
        fn rdma_get_cm_event(*mut cm::EventChannel, *mut *mut cm::Event) -> c_int;
        fn rdma_ack_cm_event(*mut cm::Event) -> c_int;
        fn rdma_migrate_id(*mut cm::Id, *mut cm::EventChannel) -> c_int;
        fn rdma_event_str(c_int) -> *const c_char;
    }
}

/// Both libraries.
pub(crate) struct Library {
    pub(crate) verbs: Verbs,
    pub(crate) cm: ConnectionManager,
}

impl Library {
    /// The libraries, loaded now or before.
    pub(crate) fn get() -> Result<&'static Library, LoadError> {
        static LOADED: OnceLock<Result<Library, LoadError>> = OnceLock::new();
        let load = || Ok(Library { verbs: Verbs::load()?, cm: ConnectionManager::load()? });
        LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
    }

    /// The name of an event.
    pub(crate) fn event(&self, event: c_int) -> String {
        // SAFETY: any number is allowed; the answer is a constant of the library.
        let name = text(unsafe { (self.cm.rdma_event_str)(event) });
        name.trim_start_matches("RDMA_CM_EVENT_").to_lowercase().replace('_', " ")
    }
}

/// A constant text of a library.
fn text(text: *const c_char) -> String {
    if text.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: the libraries' texts are constants and end in a zero.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
