//! A client of ours, of version 2 or 3: it mounts the export over the same fabric, in the matching version of MOUNT.

use super::{
    Scene,
    server::{MOUNT, NFS},
};
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_fabric::Fabric;
use rpcrdma_nfs::{mount, v2, v3};
use rpcrdma_nfs_client::{Files, Handle, Mount, MountError, Nfs2, Nfs3};
use rpcrdma_oncrpc::{Client as Rpc, SysAuth, SysCredential};
use rpcrdma_sim::Task;
use rpcrdma_transport::{ClientOptions, Quiet, Versions, connect};
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// How long a client waits before its first attempt to connect again.
const PAUSE: Duration = Duration::from_millis(100);

/// A client's host.
pub(super) struct Client {
    fabric: Arc<dyn Fabric>,
    /// The version of NFS.
    pub(super) version: u32,
    transport: Versions,
}

/// A mounted export; dropping the value ends the mount.
pub(super) struct Mounted {
    pub(super) files: Files,
    pub(super) root: Handle,
    driver: Task<()>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Client {
    pub(super) fn new(fabric: Arc<dyn Fabric>, random: &SeededRandom) -> Self {
        let version = 2 + random.below(2) as u32;
        let transport = if random.below(2) == 0 { Versions::One } else { Versions::Auto };
        Self { fabric, version, transport }
    }

    pub(super) fn of(fabric: Arc<dyn Fabric>, version: u32) -> Self {
        Self { fabric, version, transport: Versions::One }
    }

    async fn call(&self, scene: &Scene, address: SocketAddr, (program, version): (u32, u32)) -> (Rpc, Task<()>) {
        let env = scene.world.env();
        let mut options = ClientOptions::default();
        options.versions = self.transport;
        loop {
            let connecting = connect(self.fabric.clone(), address, &env, options.clone(), Arc::new(Quiet));
            if let Ok((transport, driver)) = connecting.await {
                let identity = Arc::new(SysAuth::new(SysCredential::default()));
                let driver = scene.world.spawn(async move {
                    let _ = driver.await;
                });
                let rpc = Rpc::new(transport, identity, program, version);
                // The transport soon gives up a peer that has never answered and whose connections end again and again.
                if rpc.null().await.is_ok() {
                    return (rpc, driver);
                }
                scene.tally.count("files: a client begins anew");
                driver.abort();
            }
            scene.world.sleep(PAUSE).await;
        }
    }

    /// Finds the root of the export, and connects.
    pub(super) async fn mount(&self, scene: &Scene) -> Result<Mounted, MountError> {
        let is_old = self.version == v2::VERSION;
        let version = if is_old { mount::VERSION_1 } else { mount::VERSION_3 };
        let (rpc, asking) = self.call(scene, MOUNT, (mount::PROGRAM, version)).await;
        let mount = Mount::new(rpc);
        let root: Result<Handle, MountError> = match is_old {
            true => mount.mount_1("/".into()).await.map(Into::into),
            false => mount.mount("/".into()).await.map(|mounted| mounted.root.into()),
        };
        asking.abort();
        let root = root?;
        let (rpc, driver) = self.call(scene, NFS, (v3::PROGRAM, self.version)).await;
        let files = match is_old {
            true => Nfs2::new(rpc).into(),
            false => Nfs3::new(rpc, scene.world.env().clock).into(),
        };
        Ok(Mounted { files, root, driver })
    }
}
