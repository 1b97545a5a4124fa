//! Opening a device: which one to open, and opening it again after it was gone.
//!
//! A device can be removed, or fail, and come back. All objects that were made with it end with it. The next caller
//! that connects or listens opens the device again, if it exists. The memory of the pool stays, and is registered
//! again.

use crate::{
    channel::{Channel, Id},
    config::{Config, Device},
    context::{Context, Devices},
    error::OpenError,
    resolve::resolved,
    shared::Shared,
    slabs::{SLAB_BYTES, Slabs},
    sys::Library,
};
use rpcrdma_env::Env;
use rpcrdma_fabric::Capabilities;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

/// Any port: only the route to the address matters.
const ANY_PORT: u16 = 20049;

/// All that is needed to open a device, again and again.
pub(crate) struct Opener {
    pub(crate) env: Env,
    pub(crate) config: Config,
    /// The device's name when it was first opened, and its capabilities then.
    pub(crate) name: String,
    pub(crate) capabilities: Capabilities,
    pub(crate) slabs: Arc<Slabs>,
    /// `None` while the device is gone.
    open: Mutex<Option<Arc<Shared>>>,
}

impl Opener {
    /// Opens the device for the first time.
    pub(crate) async fn open(env: Env, config: Config) -> Result<Self, OpenError> {
        let context = choose(&env, &config).await?;
        let slabs = Slabs::new(config.pool_bytes.max(SLAB_BYTES));
        let shared = Shared::over(env.clone(), config.clone(), context, slabs.clone())?;
        let (name, capabilities) = (shared.context.name(), shared.capabilities().clone());
        let open = Mutex::new(Some(Arc::new(shared)));
        Ok(Self { env, config, name, capabilities, slabs, open })
    }

    /// The open device. Opens it again if it was gone.
    pub(crate) async fn shared(&self) -> Result<Arc<Shared>, OpenError> {
        if let Some(shared) = self.still_open() {
            return Ok(shared);
        }
        // When a program asks for the list, the connection manager closes devices that are gone, so that their removal
        // can finish.
        listed()?;
        let context = choose(&self.env, &self.config).await?;
        let shared = Arc::new(Shared::over(self.env.clone(), self.config.clone(), context, self.slabs.clone())?);
        if *shared.capabilities() != self.capabilities {
            let what = "it is not the device that was here before: start this program again";
            return Err(OpenError::Unfit { device: shared.context.name(), what });
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Another caller may have been faster.
        Ok(open.get_or_insert(shared).clone())
    }

    /// The device, unless it is gone. In that case it is closed as soon as no object of it is in use.
    pub(crate) fn still_open(&self) -> Option<Arc<Shared>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = open.take_if(|shared| shared.context.has_gone());
        let still = open.clone();
        drop(open);
        drop(gone);
        still
    }
}

/// The device that the configuration chooses.
async fn choose(env: &Env, config: &Config) -> Result<Context, OpenError> {
    match &config.device {
        Device::Local(address) if !address.is_unspecified() => by_address(env, config, *address, true).await,
        Device::Towards(address) => by_address(env, config, *address, false).await,
        Device::Named(name) => {
            let known = listed()?;
            let found = known.iter().find(|context| context.name() == *name).cloned();
            found.ok_or_else(|| OpenError::UnknownDevice { name: name.clone(), known: names(&known) })
        }
        Device::Only | Device::Local(_) => match &listed()?[..] {
            [only] => Ok(only.clone()),
            known => Err(OpenError::SeveralDevices { known: names(known) }),
        },
    }
}

/// The device that has an address of ours, or that leads to an address.
async fn by_address(env: &Env, config: &Config, address: IpAddr, local: bool) -> Result<Context, OpenError> {
    let failed = |error| no_device(address, local, error);
    match find(Library::get()?, env, config, address, local).await {
        Ok(id) => Context::of(id).ok_or_else(|| failed(io::ErrorKind::NotFound.into())),
        Err(error) => {
            // If no device exists at all, that is the better error.
            listed()?;
            Err(failed(error))
        }
    }
}

/// The error if no device was found: for an address of ours, or for a peer's.
fn no_device(address: IpAddr, is_ours: bool, error: io::Error) -> OpenError {
    match is_ours {
        true => OpenError::NotOnDevice { address, error },
        false => OpenError::NoWay { peer: address, error },
    }
}

/// All devices, at least one.
fn listed() -> Result<Vec<Context>, OpenError> {
    let known = Devices::open()?.all();
    if known.is_empty() { Err(OpenError::NoDevice) } else { Ok(known) }
}

fn names(known: &[Context]) -> Vec<String> {
    known.iter().map(Context::name).collect()
}

/// An identifier that is tied to the device that has an address, or that leads to it.
async fn find(library: &'static Library, env: &Env, config: &Config, address: IpAddr, local: bool) -> io::Result<Id> {
    let id = if local {
        let id = Id::new(&Channel::new(library)?)?;
        id.bind(SocketAddr::new(address, 0))?;
        id
    } else {
        let from = config.local.map(|local| SocketAddr::new(local, 0));
        resolved(library, &*env.clock, (from, SocketAddr::new(address, ANY_PORT)), config.setup_timeout).await?
    };
    if id.device().is_null() { Err(io::ErrorKind::NotFound.into()) } else { Ok(id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_was_not_found_is_told_apart_from_an_address_on_no_device() {
        let address = IpAddr::from([192, 0, 2, 9]);
        let ours = no_device(address, true, io::ErrorKind::NotFound.into()).to_string();
        assert!(ours.starts_with("192.0.2.9 is on no RDMA device"), "{ours}");
        let theirs = no_device(address, false, io::ErrorKind::TimedOut.into()).to_string();
        assert!(theirs.starts_with("no way to 192.0.2.9 over an RDMA device was found"), "{theirs}");
    }
}
