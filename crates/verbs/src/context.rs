//! The devices that the connection manager has opened.
//!
//! When a program asks for the list of devices, the connection manager opens all of them; otherwise it opens only the
//! device to which an identifier is tied. It keeps them open, except a device that was removed: it closes that one when
//! no object uses it any more and a program next asks for the list. Some devices cannot go before (soft-RoCE,
//! soft-iWARP). So we ask for the list only if we need it.

use crate::{
    answer::check,
    channel::Id,
    error::OpenError,
    sys::{Library, cm, verbs},
};
use std::{
    ffi::{CStr, c_int},
    io, mem, ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The connection manager's list of open devices. It is freed when the last user of a device is dropped.
pub(crate) struct Devices {
    pub(crate) library: &'static Library,
    list: *mut *mut verbs::Context,
    count: usize,
}

// SAFETY: the list does not change, and both libraries may be called from any thread.
unsafe impl Send for Devices {}
// SAFETY: as above.
unsafe impl Sync for Devices {}

impl Devices {
    pub(crate) fn open() -> Result<Arc<Self>, OpenError> {
        let library = Library::get()?;
        let mut count: c_int = 0;
        // SAFETY: the function fills in the number of entries.
        let list = unsafe { (library.cm.rdma_get_devices)(&mut count) };
        if list.is_null() {
            let error = io::Error::last_os_error();
            // If the library has found no devices, it does not look again.
            let devices = std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some());
            return Err(if devices { OpenError::NoConnectionManager(error) } else { OpenError::NoDevice });
        }
        Ok(Arc::new(Self { library, list, count: usize::try_from(count).unwrap_or(0) }))
    }

    /// All devices of the list.
    pub(crate) fn all(self: &Arc<Self>) -> Vec<Context> {
        // SAFETY: the list has `count` entries, each an open device.
        let contexts = (0..self.count).map(|at| unsafe { *self.list.add(at) });
        contexts.map(|raw| Context::new(raw, Keeper::List(self.clone()))).collect()
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // SAFETY: every `Context` from this list holds a reference to it, so none is left.
        unsafe { (self.library.cm.rdma_free_devices)(self.list) }
    }
}

/// What keeps a device open.
enum Keeper {
    List(Arc<Devices>),
    /// An identifier that is tied to the device, and gets the event of its removal.
    Id(Id),
}

/// An open device. Clones are cheap.
#[derive(Clone)]
pub(crate) struct Context {
    raw: *mut verbs::Context,
    library: &'static Library,
    keeper: Arc<Keeper>,
    /// Whether the device was removed, or has failed. It stays open for objects that still use it.
    gone: Arc<AtomicBool>,
}

// SAFETY: a context may be used from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    fn new(raw: *mut verbs::Context, keeper: Keeper) -> Self {
        let library = match &keeper {
            Keeper::List(devices) => devices.library,
            Keeper::Id(id) => id.library(),
        };
        Self { raw, library, keeper: Arc::new(keeper), gone: Arc::default() }
    }

    /// The device to which an identifier is tied, if it is tied to one.
    pub(crate) fn of(id: Id) -> Option<Self> {
        let raw = id.device();
        (!raw.is_null()).then(|| Self::new(raw, Keeper::Id(id)))
    }

    pub(crate) fn raw(&self) -> *mut verbs::Context {
        self.raw
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }

    /// The table of functions that the headers call through the context.
    pub(crate) fn ops(&self) -> &verbs::ContextOps {
        // SAFETY: the context is open, and its table of functions does not change.
        unsafe { &(*self.raw).ops }
    }

    /// The device's name, `mlx5_0`.
    pub(crate) fn name(&self) -> String {
        // SAFETY: the device lives as long as its context, and its name ends in a zero.
        let name = unsafe { CStr::from_ptr((*(*self.raw).device).name.as_ptr()) };
        name.to_string_lossy().into_owned()
    }

    /// Whether the device speaks iWARP; otherwise it speaks InfiniBand or RoCE.
    pub(crate) fn is_iwarp(&self) -> bool {
        // SAFETY: the device lives as long as its context.
        unsafe { (*(*self.raw).device).transport_type == verbs::TRANSPORT_IWARP }
    }

    pub(crate) fn attributes(&self) -> io::Result<verbs::DeviceAttributes> {
        // SAFETY: numbers and arrays of numbers, for which zero is a value.
        let mut attributes = unsafe { mem::zeroed() };
        // SAFETY: the context is open, and the structure is the function's own.
        check(unsafe { (self.library().verbs.ibv_query_device)(self.raw, &mut attributes) })?;
        Ok(attributes)
    }

    pub(crate) fn port(&self, number: u8) -> io::Result<verbs::PortAttributes> {
        // SAFETY: numbers, for which zero is a value.
        let mut attributes = unsafe { mem::zeroed() };
        // SAFETY: the context is open. The library writes as much of the structure as its version knows.
        check(unsafe { (self.library().verbs.ibv_query_port)(self.raw, number, &mut attributes) })?;
        Ok(attributes)
    }

    pub(crate) fn gid(&self, port: u8, index: c_int) -> io::Result<[u8; 16]> {
        let mut gid = verbs::Gid::default();
        // SAFETY: the context is open, and the structure is the function's own.
        check(unsafe { (self.library().verbs.ibv_query_gid)(self.raw, port, index, &mut gid) })?;
        Ok(gid.raw)
    }

    /// Marks the device as removed or failed: no new connection uses it.
    pub(crate) fn leave(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// As [`is_gone`](Self::is_gone), for callers that may have missed the event: it may have come for an identifier
    /// without a connection.
    pub(crate) fn has_gone(&self) -> bool {
        if let Keeper::Id(id) = &*self.keeper
            && let Ok(Some(event)) = id.channel().next()
            && event.kind == cm::DEVICE_REMOVAL
        {
            self.leave();
        }
        self.is_gone()
    }

    /// Whether the connection manager still lists the device. A device that was removed and has come back is another.
    pub(crate) fn is_listed(&self) -> bool {
        Devices::open().is_ok_and(|devices| devices.all().iter().any(|other| self.is(other.raw)))
    }

    /// Whether another pointer of the libraries leads to this device.
    pub(crate) fn is(&self, other: *mut verbs::Context) -> bool {
        ptr::eq(self.raw, other)
    }
}
