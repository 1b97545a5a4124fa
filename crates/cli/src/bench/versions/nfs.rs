//! Versions 3 and 4.2 of NFS over one connection: the same file, asked about, read and written.

use super::programs::{DATA, DATA_BYTES, DATA_DIRECTORY};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use rpcrdma_env::{Buffer, Env};
use rpcrdma_nfs::{attr::Stability, mount, v3, v4};
use rpcrdma_nfs_client::{
    Access, File, Files, Handle, Mount, Nfs3, Node,
    v4::{Nfs4, Options},
};
use rpcrdma_oncrpc::{Client, ClientTransport, NoAuth};
use rpcrdma_xdr::ItemData;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that are read and written: the sizes of a small file, of a larger one, and the most that a call moves.
pub(super) const SIZES: [u32; 3] = [4 << 10, 64 << 10, DATA_BYTES];

/// A version of NFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V3,
    V4_2,
}

impl Version {
    pub(super) const ALL: [Version; 2] = [Version::V3, Version::V4_2];

    pub(super) fn name(self) -> &'static str {
        match self {
            Version::V3 => "3",
            Version::V4_2 => "4.2",
        }
    }
}

/// The file in one version.
struct Opened {
    files: Files,
    file: File,
}

/// The file in both versions.
pub(super) struct Data {
    v3: Opened,
    v4: Opened,
    octets: Bytes,
    /// The buffer of the last READ, to be used again.
    buffer: Mutex<Option<Buffer>>,
}

impl Data {
    /// Finds and opens the file over a connection.
    pub(super) async fn open(transport: &Arc<dyn ClientTransport>, env: &Env) -> Result<Self> {
        let client = |program, version| Client::new(transport.clone(), Arc::new(NoAuth), program, version);
        let mount = Mount::new(client(mount::PROGRAM, mount::VERSION_3));
        let root = mount.mount(DATA_DIRECTORY.into()).await?.root;
        let files = Files::from(Nfs3::new(client(v3::PROGRAM, v3::VERSION), env.clock.clone()));
        let v3 = open(files, &root.into(), DATA).await?;
        let options = Options::new("bench").with_minors(2..=2);
        let nfs = Nfs4::connect(client(v4::PROGRAM, v4::VERSION), env, options).await.context("NFS version 4.2")?;
        tokio::spawn(nfs.driver());
        let root = Handle::from(&nfs.root().await?.file);
        let v4 = open(Files::from(nfs), &root, &format!("{DATA_DIRECTORY}/{DATA}")).await?;
        Ok(Self { v3, v4, octets: Bytes::from(vec![1; DATA_BYTES as usize]), buffer: Mutex::default() })
    }

    fn opened(&self, version: Version) -> &Opened {
        match version {
            Version::V3 => &self.v3,
            Version::V4_2 => &self.v4,
        }
    }

    /// Asks for the file's attributes.
    pub(super) async fn attributes(&self, version: Version) -> Result<()> {
        let Opened { files, file } = self.opened(version);
        let attributes = files.getattr(&file.handle()).await?;
        ensure!(attributes.size == u64::from(DATA_BYTES), "the file has changed");
        Ok(())
    }

    /// Reads `octets` bytes.
    pub(super) async fn read(&self, version: Version, octets: u32) -> Result<()> {
        let len = octets as usize;
        let kept = self.buffer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let buffer = kept.filter(|buffer| buffer.capacity() == len);
        let buffer = buffer.unwrap_or_else(|| Buffer::from_vec(vec![0; len]));
        let data = self.opened(version).file.read_into(0, buffer).await?.data;
        ensure!(data.as_slice().len() == len, "the server returned fewer bytes than were asked for");
        if let ItemData::Placed(buffer) = data {
            *self.buffer.lock().unwrap_or_else(PoisonError::into_inner) = Some(buffer);
        }
        Ok(())
    }

    /// Writes `octets` bytes, unstably.
    pub(super) async fn write(&self, version: Version, octets: u32) -> Result<()> {
        let data = self.octets.slice(..octets as usize);
        let written = self.opened(version).file.write(0, Stability::Unstable, data).await?;
        ensure!(written.count == octets, "the server wrote fewer bytes than it was given");
        Ok(())
    }
}

async fn open(files: Files, root: &Handle, path: &str) -> Result<Opened> {
    let found = files.walk(root, path.as_bytes(), true).await.context("finding the file")?;
    let file = files.open(Node::from(&found), Access::Both).await.context("opening the file")?;
    Ok(Opened { files, file })
}
