//! Finding the file of a path.

use crate::{Error, Files, Found, Handle, Name};
use bytes::Bytes;
use rpcrdma_nfs::attr::FileType;
use std::collections::VecDeque;

/// How many symbolic links the walk follows on one path: Linux's own limit.
const MAX_LINKS: u32 = 40;

impl Files {
    /// The file at `path` below `root`: names separated by `/`. Follows symbolic links on the way, and at the end if
    /// `follow_last`; an absolute link starts at `root` again, and `..` does not lead above `root`.
    ///
    /// # Errors
    /// As [`Files::lookup`]; also if there are too many symbolic links.
    pub async fn walk(&self, root: &Handle, path: &[u8], follow_last: bool) -> Result<Found, Error> {
        let mut links_left = MAX_LINKS;
        let mut above: Vec<Found> = Vec::new();
        let top = Found { file: root.clone(), attributes: self.getattr(root).await?, place: None };
        let mut here = top.clone();
        let mut names = split(&Bytes::copy_from_slice(path));
        while let Some(name) = names.pop_front() {
            if &name[..] == b".." {
                here = above.pop().unwrap_or_else(|| top.clone());
                continue;
            }
            if here.attributes.file_type != FileType::Directory {
                return Err(self.no_directory());
            }
            let found = self.lookup(&here.file, &Name(name)).await?;
            if found.attributes.file_type == FileType::Symlink && (follow_last || !names.is_empty()) {
                links_left = links_left.checked_sub(1).ok_or(Error::TooManyLinks { max: MAX_LINKS })?;
                let target = self.readlink(&found.file).await?;
                if target.starts_with(b"/") {
                    here = top.clone();
                    above.clear();
                }
                let mut target = split(&target);
                target.append(&mut names);
                names = target;
                continue;
            }
            above.push(std::mem::replace(&mut here, found));
        }
        Ok(here)
    }
}

fn split(path: &Bytes) -> VecDeque<Bytes> {
    path.split(|&octet| octet == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(|name| path.slice_ref(name))
        .collect()
}
