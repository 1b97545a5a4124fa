//! Protection domains and registered memory.
//!
//! A [`Region`] is a registration; dropping it ends it, and [`Region::end`] returns whether that worked. Slabs are
//! registered in a [`Domain`] when they are first used in it, and stay registered. The caller that registers memory
//! keeps it alive and in place for as long as the region.

use crate::{
    abandoned::Abandoned,
    answer::{check, report},
    context::Context,
    memory_lock::{is_memory_lock, memory_lock_limit},
    slabs::{SLAB_BYTES, Slabs},
    sys::verbs,
};
use rpcrdma_env::Buffer;
use std::{
    collections::BTreeMap,
    io, ptr,
    sync::{Arc, Mutex, PoisonError},
};

/// A protection domain, and the slabs that are registered in it.
pub(crate) struct Domain {
    raw: *mut verbs::ProtectionDomain,
    context: Context,
    /// Whether windows are bound over this domain's regions.
    windows: bool,
    slabs: Arc<Slabs>,
    abandoned: Arc<Abandoned>,
    /// By address. Their pointers stay valid as long as the domain: no entry is removed.
    registered: Mutex<BTreeMap<usize, *mut verbs::MemoryRegion>>,
}

// SAFETY: protection domains and regions may be used from any thread.
unsafe impl Send for Domain {}
// SAFETY: as above; the table is behind a lock.
unsafe impl Sync for Domain {}

/// How work requests and binds name registered memory.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) region: *mut verbs::MemoryRegion,
    pub(crate) local: u32,
}

impl Domain {
    pub(crate) fn new(
        context: Context,
        slabs: Arc<Slabs>,
        abandoned: Arc<Abandoned>,
        windows: bool,
    ) -> io::Result<Arc<Self>> {
        // SAFETY: the context is open.
        // V1-8.1.1-a, V2-11.1.1-a
        let raw = unsafe { (context.library().verbs.ibv_alloc_pd)(context.raw()) };
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Arc::new(Self { raw, context, windows, slabs, abandoned, registered: Mutex::default() }))
    }

    pub(crate) fn raw(&self) -> *mut verbs::ProtectionDomain {
        self.raw
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// The key of bytes that lie in a slab; `None` if they lie in none.
    pub(crate) fn slab_key(&self, address: usize, octets: usize) -> Option<io::Result<Key>> {
        let base = self.slabs.slab_of(address, octets)?;
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(region) = registered.get(&base) {
            return Some(Ok(key(*region)));
        }
        let bind = if self.windows { verbs::ACCESS_BIND } else { 0 };
        // The slab outlives the registration: the domain holds a reference to the slabs.
        let region = match self.register_raw(base, SLAB_BYTES, verbs::ACCESS_LOCAL_WRITE | bind) {
            Ok(region) => region,
            Err(error) => return Some(Err(error)),
        };
        registered.insert(base, region);
        Some(Ok(key(region)))
    }

    /// Registers memory with the given rights.
    ///
    /// # Safety
    /// Until the region is dropped, the memory must stay where it is, and no code may use it in a way that conflicts
    /// with the rights.
    pub(crate) unsafe fn register(self: &Arc<Self>, address: usize, octets: usize, access: u32) -> io::Result<Region> {
        Ok(Region { raw: self.register_raw(address, octets, access)?, domain: self.clone() })
    }

    /// The key of some memory, and its registration if it does not lie in the pool.
    ///
    /// # Safety
    /// As for [`Domain::register`]: the memory stays as long as the region, and no other code uses it in a way that
    /// conflicts.
    pub(crate) unsafe fn key(
        self: &Arc<Self>,
        address: usize,
        octets: usize,
        access: u32,
    ) -> io::Result<(Key, Option<Region>)> {
        let found = match self.slab_key(address, octets) {
            Some(key) => key.map(|key| (key, None)),
            // SAFETY: the caller's promise.
            None => unsafe { self.register(address, octets, access) }.map(|region| (region.key(), Some(region))),
        };
        found.map_err(|error| {
            let limit = memory_lock_limit().filter(|_| is_memory_lock(&error));
            let hint =
                limit.map(|limit| format!("; this process may lock {limit}, see `ulimit -l`")).unwrap_or_default();
            tracing::warn!(octets, "memory cannot be registered: {error}{hint}");
            io::Error::new(error.kind(), format!("{octets} bytes cannot be registered: {error}{hint}"))
        })
    }

    /// A receive in the device's form, over the buffer's whole capacity, and its registration if it does not lie in the
    /// pool. An empty one needs none.
    ///
    /// # Safety
    /// As for [`Domain::key`].
    pub(crate) unsafe fn receive_slice(
        self: &Arc<Self>,
        buffer: &mut Buffer,
    ) -> io::Result<(verbs::Slice, Option<Region>)> {
        let octets = buffer.bytes_mut();
        let (address, octets) = (octets.as_mut_ptr() as usize, octets.len());
        let mut slice = verbs::Slice { addr: address as u64, length: octets.try_into().unwrap_or(u32::MAX), lkey: 0 };
        if octets == 0 {
            return Ok((slice, None));
        }
        // SAFETY: the caller's promise.
        let (key, region) = unsafe { self.key(address, octets, verbs::ACCESS_LOCAL_WRITE) }?;
        slice.lkey = key.local;
        Ok((slice, region))
    }

    fn register_raw(&self, address: usize, octets: usize, access: u32) -> io::Result<*mut verbs::MemoryRegion> {
        // SAFETY: the domain is allocated. The device reaches the memory only when work or a peer names the region;
        // both callers keep the memory as long as the region.
        let region = unsafe { (self.context.library().verbs.ibv_reg_mr)(self.raw, address as *mut _, octets, access) };
        if region.is_null() { Err(io::Error::last_os_error()) } else { Ok(region) }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let library = &self.context.library().verbs;
        for region in std::mem::take(self.registered.get_mut().unwrap_or_else(PoisonError::into_inner)).into_values() {
            // SAFETY: queue pairs, windows and regions hold a reference to their domain, so nothing uses the region any
            // more.
            if let Err(error) = check(unsafe { (library.ibv_dereg_mr)(region) }) {
                // A window may still lead into this slab, so the slabs are never freed.
                self.abandoned.forget(self.slabs.clone(), SLAB_BYTES, &error);
            }
        }
        // SAFETY: as above.
        report("freeing a protection domain", check(unsafe { (library.ibv_dealloc_pd)(self.raw) }));
    }
}

fn key(region: *mut verbs::MemoryRegion) -> Key {
    // SAFETY: the region is registered.
    Key { region, local: unsafe { (*region).lkey } }
}

/// Registered memory.
pub(crate) struct Region {
    /// Null after its end.
    raw: *mut verbs::MemoryRegion,
    domain: Arc<Domain>,
}

// SAFETY: as for the domain.
unsafe impl Send for Region {}

impl Region {
    pub(crate) fn key(&self) -> Key {
        key(self.raw)
    }

    /// The key with which a peer reaches it.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: the region is registered.
        unsafe { (*self.raw).rkey }
    }
}

impl Region {
    /// Ends the registration. After an error, a peer that knows its key may still reach the memory.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.deregister()
    }

    fn deregister(&mut self) -> io::Result<()> {
        let raw = std::mem::replace(&mut self.raw, ptr::null_mut());
        if raw.is_null() {
            return Ok(());
        }
        // SAFETY: the owner of the region has ended everything that used it, and nothing names it afterwards.
        check(unsafe { (self.domain.context.library().verbs.ibv_dereg_mr)(raw) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        report("deregistering memory", self.deregister());
    }
}
