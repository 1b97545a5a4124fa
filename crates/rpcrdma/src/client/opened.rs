//! A client of one export, by paths.

use super::{NfsUrl, Options, Result, Session, Sessions};
use crate::{Error, error::Context};
use bytes::{Bytes, BytesMut};
use rpcrdma_nfs::{attr::NewAttributes, names::escaped};
use rpcrdma_nfs_client::{Access, CreateHow, Entry, File, Files, Found, Name, Node, Reader, Writer};
use std::sync::Arc;

/// The permissions of a file that is made.
const NEW_FILE_MODE: u32 = 0o644;
/// Calls under way of one file.
const DEPTH: usize = 8;
/// The least that a READ of a whole file asks for: a file can have grown since its size was told.
const LEAST_BLOCK: u64 = 4096;

/// A client of what a URL names. Paths are those below it, and begin with a slash or not.
///
/// ```no_run
/// # async fn used() -> Result<(), rpcrdma::Error> {
/// let client = rpcrdma::Client::connect("nfs://server/export").await?;
/// let file = client.open("/x").await?;
/// let first = file.read(0, 4096).await?.data;
/// client.write("/copy", first).await?;
/// client.close().await;
/// # Ok(()) }
/// ```
pub struct Client {
    sessions: Sessions,
    session: Arc<Session>,
    /// The part of the URL's path that lies in the session's export.
    path: Vec<u8>,
}

impl Client {
    /// Connects to the server of a URL, `nfs://HOST[:PORT]/PATH[?NAME=VALUE&...]`, and finds the export that the path
    /// names.
    ///
    /// # Errors
    /// If the text is not such a URL, if the server does not answer, or if it does not export the path to this user.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, Options::default()).await
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_with(url: &str, options: Options) -> Result<Self> {
        let url: NfsUrl = url.parse().map_err(|error: super::BadUrl| Error::misuse(error.to_string()))?;
        let mut sessions = Sessions::new(options)?;
        let (session, path) = sessions.open(&url).await?;
        Ok(Self { sessions, session, path })
    }

    /// All that a client can do with files by their handles, [the root's](Self::root) first of all.
    pub fn files(&self) -> &Files {
        &self.session.files
    }

    /// The root of the export. What the URL names may lie below it.
    pub fn root(&self) -> &rpcrdma_nfs_client::Handle {
        &self.session.root
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// If the file does not exist, or the user may not read it.
    pub async fn open(&self, path: impl AsRef<[u8]>) -> Result<File> {
        self.open_for(path, Access::Read).await
    }

    /// Opens a file.
    ///
    /// # Errors
    /// If the file does not exist, or the user may not open it for this access.
    pub async fn open_for(&self, path: impl AsRef<[u8]>, access: Access) -> Result<File> {
        let path = path.as_ref();
        let found = self.find(path).await?;
        self.session.files.open(Node::from(&found), access).await.with_context(|| escaped(path))
    }

    /// Opens a file for reading and writing, and creates it if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be created or opened.
    pub async fn create(&self, path: impl AsRef<[u8]>) -> Result<File> {
        self.create_with(path.as_ref(), None).await
    }

    /// The same; a file that exists gets this size, which can be 0 only.
    async fn create_with(&self, path: &[u8], size: Option<u64>) -> Result<File> {
        let (above, name) = split(path).with_context(|| format!("{}: this names no file", escaped(path)))?;
        let directory = self.find(above).await?.file;
        let new = NewAttributes { mode: Some(NEW_FILE_MODE), size, ..NewAttributes::default() };
        let how = CreateHow::Unchecked(new);
        let created = self.session.files.create(&directory, &Name::from(name), how).await;
        Ok(created.with_context(|| escaped(path))?.file)
    }

    /// Reads a whole file into memory, however large it is. A server that is not trusted can send data without end: use
    /// [`open`](Self::open) for it.
    ///
    /// # Errors
    /// If the file does not exist, or cannot be read.
    pub async fn read(&self, path: impl AsRef<[u8]>) -> Result<Bytes> {
        let path = path.as_ref();
        let found = self.find(path).await?;
        let size = found.attributes.size;
        let file = self.session.files.open(Node::from(&found), Access::Read).await.with_context(|| escaped(path))?;
        let block = u32::try_from(size.max(LEAST_BLOCK)).unwrap_or(u32::MAX).min(self.session.transfer.read);
        let mut reader = Reader::new(file.clone(), 0, u64::MAX, block, DEPTH).expecting(size);
        let read = async {
            let mut all = BytesMut::new();
            while let Some(block) = reader.next().await? {
                all.extend_from_slice(&block.data);
            }
            Ok::<_, rpcrdma_nfs_client::Error>(all.freeze())
        };
        let read = read.await;
        // In any case the server need not keep the file open.
        let closed = file.close().await;
        read.and_then(|all| closed.map(|()| all)).with_context(|| escaped(path))
    }

    /// Replaces the contents of a file, and creates the file if it does not exist. The data are on the server's disk
    /// when this returns.
    ///
    /// A server usually treats root of another machine as the anonymous user (root squash): then root may write only
    /// where everybody may.
    ///
    /// # Errors
    /// If the file cannot be created or written.
    pub async fn write(&self, path: impl AsRef<[u8]>, data: Bytes) -> Result<()> {
        let path = path.as_ref();
        let file = self.create_with(path, Some(0)).await?;
        let mut writer = Writer::new(file.clone(), self.session.transfer.write, DEPTH);
        let written = async {
            writer.write(0, data).await?;
            writer.finish().await
        };
        let written = written.await;
        // In any case the server need not keep the file open.
        let closed = file.close().await;
        written.and(closed).with_context(|| escaped(path))
    }

    /// The entries of a directory in the server's order, without `.` and `..`.
    ///
    /// ```no_run
    /// # async fn f(client: &rpcrdma::Client) -> Result<(), rpcrdma::Error> {
    /// for entry in client.list("/logs").await? {
    ///     let path = [b"/logs/", entry.name.as_slice()].concat();
    ///     println!("{}: {} bytes", String::from_utf8_lossy(&path), client.read(&path).await?.len());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the directory does not exist, or the user may not read it.
    pub async fn list(&self, path: impl AsRef<[u8]>) -> Result<Vec<Entry>> {
        let path = path.as_ref();
        let directory = self.find(path).await?.file;
        let mut listing = self.session.files.list(&directory, self.session.transfer);
        let mut all = Vec::new();
        while let Some(entry) = listing.next().await.with_context(|| escaped(path))? {
            all.push(entry);
        }
        Ok(all)
    }

    /// A file and its attributes.
    ///
    /// # Errors
    /// If the file does not exist.
    pub async fn find(&self, path: impl AsRef<[u8]>) -> Result<Found> {
        let path = path.as_ref();
        let whole = [&self.path[..], b"/", path].concat();
        self.session.find(&whole, true).await.with_context(|| escaped(path))
    }

    /// Tells the server that this client leaves. Without this call the server keeps what the client held until its
    /// lease ends. If the server also restarts in that time, it waits for the client to reclaim that: nobody opens a
    /// file in NFS 4 until its grace period is over ([`Options::grace`](crate::server::Options::grace)).
    ///
    /// If tasks share the client in an [`Arc`](std::sync::Arc), [`Arc::into_inner`](std::sync::Arc::into_inner) gives
    /// it back once the others have dropped theirs.
    pub async fn close(self) {
        self.sessions.ending().end().await;
    }
}

/// A path's directory and its last name.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|octet| *octet == b'/');
    let (above, name) = at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
    (!name.is_empty() && name != b"." && name != b"..").then_some((above, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_directory_and_a_name() {
        assert_eq!(split(b"/a/b"), Some((&b"/a"[..], &b"b"[..])));
        assert_eq!(split(b"/a"), Some((&b""[..], &b"a"[..])));
        assert_eq!(split(b"a"), Some((&b""[..], &b"a"[..])));
        assert_eq!([split(b"/"), split(b"/a/"), split(b".."), split(b"")], [None; 4]);
    }
}
