//! Reads directories: READDIR with attributes and handles. [`Listing`](crate::Listing) walks through a whole directory.

use super::{
    Error, Nfs4, attributes,
    compound::{ATTRIBUTES, Plan, put},
    reply::done,
};
use rpcrdma_nfs::{
    attr::Attributes,
    v4::{self, Args, Attribute, Bitmap, FileAttributes, Handle, Name, Op, Value, Verifier, ops},
};

const ASKED: Bitmap = ATTRIBUTES.with(Attribute::Handle as u32).with(Attribute::ReadAttributesError as u32);

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Name,
    /// The cookie with which to go on after it.
    pub cookie: u64,
    /// The file's attributes, if the server has sent them.
    pub attributes: Option<Attributes>,
    /// The file's handle, if the server has sent it.
    pub file: Option<Handle>,
}

/// Some names of a directory.
#[derive(Clone, Debug)]
pub struct Page {
    /// The names.
    pub entries: Vec<Entry>,
    /// The verifier that makes their cookies valid.
    pub verifier: Verifier,
    /// Whether the last is the directory's last.
    pub end: bool,
}

impl Nfs4 {
    /// READDIR: names from `cookie` on, 0 at first, in about `octets` bytes.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn readdir(
        &self,
        directory: &Handle,
        cookie: u64,
        verifier: Verifier,
        octets: u32,
    ) -> Result<Page, Error> {
        let octets = octets.min(self.transfer().directory);
        let read = ops::ReadDir { cookie, verifier, directory_count: octets, max_count: octets, asked: ASKED };
        let ops = [put(directory), Args::ReadDir(read)];
        let mut reply = self.inner.perform(Plan::looks(Op::ReadDir), None, &mut |_| Ok(ops.to_vec())).await?;
        let read = done!(reply, ReadDir)?;
        if read.entries.is_empty() && !read.end {
            return Err(Error::nonsense(Op::ReadDir, "returned no entry before the end"));
        }
        let entries = read.entries.into_iter().map(entry).collect::<Result<_, _>>()?;
        Ok(Page { entries, verifier: read.verifier, end: read.end })
    }
}

fn entry(entry: ops::Entry) -> Result<Entry, Error> {
    let ops::Entry { cookie, name, attributes } = entry;
    let octets = name.as_slice();
    if octets.is_empty() || octets.contains(&b'/') || octets.contains(&0) {
        return Err(Error::nonsense(Op::ReadDir, "returned a name that is not valid for a file"));
    }
    // Copied: otherwise a name that is kept would keep the whole reply in memory.
    let name = Name::from(octets);
    let (attributes, file) = told(&attributes)?;
    Ok(Entry { name, cookie, attributes, file })
}

/// The attributes and the handle in an entry; none if the server has a reason not to send them.
fn told(told: &FileAttributes) -> Result<(Option<Attributes>, Option<Handle>), Error> {
    let values = attributes::values(told, ASKED)?;
    let failed = values.iter().any(|value| matches!(value, Value::ReadAttributesError(status) if status.0 != 0));
    let file = values.iter().find_map(|value| match value {
        Value::Handle(file) => Some(file.clone()),
        _ => None,
    });
    let attributes = if failed { None } else { v4::attributes_of(&values, attributes::NOBODY) };
    Ok((attributes, file))
}
