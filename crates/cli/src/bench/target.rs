//! The file that is read or written.

use super::Op;
use crate::{
    copy::DEPTH,
    failure::At,
    names::escaped,
    place::Place,
    session::{Session, Sessions},
};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use rpcrdma::client::NfsUrl;
use rpcrdma_nfs::attr::{FileType, NewAttributes};
use rpcrdma_nfs_client::{Access, CreateHow, File, Node, Verifier, Writer};

/// The bytes of a file that is made to be written over.
const NEW_FILE_BYTES: u64 = 256 << 20;
/// The permissions of a file that is made.
const NEW_FILE_MODE: u32 = 0o644;

/// A file. If it is read or written, it is open in the session that found it, which also commits it.
pub(super) struct Target {
    node: Node,
    file: Option<File>,
    octets: u64,
}

impl Target {
    /// Finds the file, or makes it.
    ///
    /// # Errors
    /// If it is not what `op` can use, or `block` is more than the server takes at a time.
    pub(super) async fn open(
        sessions: &mut Sessions,
        url: &NfsUrl,
        op: Op,
        block: u32,
        overwrite: bool,
    ) -> Result<Self> {
        let (session, path) = sessions.open(url).await.with_context(|| At::new(&url.path))?;
        let limit = match op {
            Op::Read => session.transfer.read,
            Op::Write => session.transfer.write,
            Op::Null | Op::Getattr => u32::MAX,
        };
        ensure!(block <= limit, "the server allows at most {limit} bytes in a {}", op.name());
        let found = match session.files.walk(&session.root, &path, true).await {
            Err(error) if op == Op::Write && error.is_absent() => {
                let (node, file) = make(&session, &path).await.with_context(|| At::new(&url.path))?;
                return Ok(Self { node, file: Some(file), octets: NEW_FILE_BYTES });
            }
            Err(error) => return Err(session.explained(error, &path).await).with_context(|| At::new(&url.path)),
            Ok(found) => found,
        };
        if op.moves_data() {
            let name = escaped(&url.path);
            ensure!(found.attributes.file_type == FileType::Regular, "{name} is not a regular file");
            if op == Op::Write && !overwrite {
                bail!("{name} exists; with --overwrite its contents are written over");
            }
            ensure!(found.attributes.size > 0, "{name} is empty");
        }
        let (node, octets) = (Node::from(&found), found.attributes.size);
        let file = match op.moves_data() {
            true => Some(open(&session, &node, op).await.with_context(|| At::new(&url.path))?),
            false => None,
        };
        Ok(Self { node, file, octets })
    }

    /// The file, which each connection opens for itself, and its size in bytes.
    pub(super) fn file(&self) -> (Node, u64) {
        (self.node.clone(), self.octets)
    }

    /// Makes everything durable.
    pub(super) async fn commit(&self) -> Result<Verifier> {
        Ok(self.file.as_ref().context("the file is not open")?.commit(0, 0).await?)
    }
}

/// Opens the file for what is measured.
pub(super) async fn open(session: &Session, node: &Node, op: Op) -> Result<File> {
    let access = if op == Op::Write { Access::Write } else { Access::Read };
    Ok(session.files.open(node.clone(), access).await?)
}

async fn make(session: &Session, path: &[u8]) -> Result<(Node, File)> {
    let place = Place::find(session, path).await?;
    let how = CreateHow::Guarded(NewAttributes { mode: Some(NEW_FILE_MODE), ..Default::default() });
    let file = session.files.create(&place.directory, &place.name, how).await?.file;
    let block = u64::from(session.transfer.write);
    let octets = pattern(session.transfer.write);
    let mut writer = Writer::new(file.clone(), session.transfer.write, DEPTH);
    let mut offset = 0;
    while offset < NEW_FILE_BYTES {
        let len = block.min(NEW_FILE_BYTES - offset);
        writer.write(offset, octets.slice(..len as usize)).await?;
        offset += len;
    }
    writer.finish().await?;
    let place = rpcrdma_nfs_client::Place { directory: place.directory, name: place.name };
    Ok((Node { file: file.handle(), place: Some(place) }, file))
}

/// Bytes to write: not zero, which a file system could leave out.
pub(super) fn pattern(len: u32) -> Bytes {
    (0..len).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 24) as u8 | 1).collect()
}
