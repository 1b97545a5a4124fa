//! NFS version 2, in the words of version 3 where both have the same.

use super::{Describe, Operation, Value};
use rpcrdma_nfs::{
    attr::FileType,
    v2::{
        Answer, Create, FileSystemStatus, FileSystemStatusOk, GetAttributes, Handle, Link, Lookup, LookupOk,
        MakeDirectory, Name, NewAttributes, Null, Read, ReadDirectory, ReadDirectoryOk, ReadLink, ReadLinkOk, ReadOk,
        Remove, RemoveDirectory, Rename, Root, SetAttributes, SetTime, SymbolicLink, Time, Write, WriteCache,
        word_device,
    },
    v3,
};
use rpcrdma_xdr::ItemData;

pub(super) fn handle<'a>(key: &'static str, handle: &Handle, to: &'a mut Operation) -> &'a mut Operation {
    if let Ok(handle) = v3::Handle::new(&handle.0) {
        to.handle(key, &handle);
    }
    to
}

fn in_directory<'a>(to: &'a mut Operation, directory: &Handle, name: &Name) -> &'a mut Operation {
    handle("directory", directory, to).name("name", name.as_slice())
}

fn time(Time { seconds, microseconds }: Time) -> Value {
    Value::Time(v3::Time { seconds, nanoseconds: microseconds.saturating_mul(1000) })
}

/// What CREATE makes, if that is not a regular file.
fn special(what: FileType) -> Option<&'static str> {
    match what {
        FileType::Block => Some("block device"),
        FileType::Character => Some("character device"),
        FileType::Socket => Some("socket"),
        FileType::Fifo => Some("named pipe"),
        FileType::Regular | FileType::Directory | FileType::Symlink => None,
    }
}

impl Describe for NewAttributes {
    fn describe(&self, to: &mut Operation) {
        if let Some(mode) = self.mode {
            to.put("mode", Value::Mode(mode & 0o7777));
        }
        for (key, word) in [("uid", self.uid), ("gid", self.gid), ("size", self.size)] {
            if let Some(word) = word {
                to.number(key, word);
            }
        }
        for (key, now, how) in [("atime", "atime=now", self.accessed), ("mtime", "mtime=now", self.modified)] {
            match how {
                SetTime::Keep => {}
                SetTime::Server => {
                    to.put(key, Value::Word(now));
                }
                SetTime::Client(at) => {
                    to.put(key, time(at));
                }
            }
        }
    }
}

impl Describe for GetAttributes {
    fn describe(&self, to: &mut Operation) {
        handle("file", &self.file, to);
    }
}

impl Describe for SetAttributes {
    fn describe(&self, to: &mut Operation) {
        self.attributes.describe(handle("file", &self.file, to));
    }
}

impl Describe for Lookup {
    fn describe(&self, to: &mut Operation) {
        in_directory(to, &self.directory, &self.name);
    }
}

impl Describe for LookupOk {
    fn describe(&self, to: &mut Operation) {
        self.attributes.describe(handle("file", &self.file, to));
    }
}

impl Describe for ReadLink {
    fn describe(&self, to: &mut Operation) {
        handle("link", &self.link, to);
    }
}

impl Describe for ReadLinkOk {
    fn describe(&self, to: &mut Operation) {
        to.name("path", &self.path.0).is_target();
    }
}

impl Describe for Read {
    fn describe(&self, to: &mut Operation) {
        handle("file", &self.file, to);
        to.put("count", Value::Count(self.count.into())).put("offset", Value::Offset(self.offset.into()));
    }
}

impl Describe for ReadOk<ItemData> {
    fn describe(&self, to: &mut Operation) {
        to.put("count", Value::Count(self.data.as_slice().len() as u64)).number("size", self.attributes.size);
    }
}

impl Describe for Write {
    fn describe(&self, to: &mut Operation) {
        handle("file", &self.file, to);
        to.put("count", Value::Count(self.data.len() as u64)).put("offset", Value::Offset(self.offset.into()));
    }
}

impl Describe for Create {
    fn describe(&self, to: &mut Operation) {
        in_directory(to, &self.directory, &self.name);
        let what = self.attributes.file_type().filter(|_| self.attributes.names_type());
        let Some((what, word)) = what.and_then(|what| special(what).map(|word| (what, word))) else {
            return self.attributes.describe(to);
        };
        to.put("file_type", Value::Word(word));
        if let (FileType::Block | FileType::Character, Some(size)) = (what, self.attributes.size) {
            let device = word_device(size);
            to.number("major", device.major).number("minor", device.minor);
        }
        NewAttributes { size: None, ..self.attributes }.describe(to);
    }
}

impl Describe for Remove {
    fn describe(&self, to: &mut Operation) {
        in_directory(to, &self.directory, &self.name);
    }
}

impl Describe for Rename {
    fn describe(&self, to: &mut Operation) {
        handle("from_directory", &self.from_directory, to).name("from", self.from.as_slice());
        handle("to_directory", &self.to_directory, to).is_target().name("to", self.to.as_slice());
    }
}

impl Describe for Link {
    fn describe(&self, to: &mut Operation) {
        handle("file", &self.file, to);
        handle("directory", &self.directory, to).is_target().name("name", self.name.as_slice());
    }
}

impl Describe for SymbolicLink {
    fn describe(&self, to: &mut Operation) {
        in_directory(to, &self.directory, &self.name).name("path", &self.path.0).is_target();
        self.attributes.describe(to);
    }
}

impl Describe for MakeDirectory {
    fn describe(&self, to: &mut Operation) {
        self.attributes.describe(in_directory(to, &self.directory, &self.name));
    }
}

impl Describe for RemoveDirectory {
    fn describe(&self, to: &mut Operation) {
        in_directory(to, &self.directory, &self.name);
    }
}

impl Describe for ReadDirectory {
    fn describe(&self, to: &mut Operation) {
        handle("directory", &self.directory, to).number("cookie", self.cookie).number("count", self.count);
    }
}

impl Describe for ReadDirectoryOk {
    fn describe(&self, to: &mut Operation) {
        to.number("entries", self.entries.len() as u64).flag("eof", self.end);
    }
}

impl Describe for FileSystemStatus {
    fn describe(&self, to: &mut Operation) {
        handle("root", &self.root, to);
    }
}

impl Describe for FileSystemStatusOk {
    fn describe(&self, to: &mut Operation) {
        to.number("tsize", self.transfer_bytes).number("bsize", self.block_bytes);
        to.number("blocks", self.blocks).number("bfree", self.free).number("bavail", self.available);
    }
}

macro_rules! nothing {
    ($($type:ty),*) => {$(
        impl Describe for $type {
            fn describe(&self, _: &mut Operation) {}
        }
    )*};
}

nothing!(Null, Root, WriteCache);

impl<T: Describe> Describe for Answer<T> {
    /// The status of a failure is shown beside the content.
    fn describe(&self, to: &mut Operation) {
        if let Answer::Ok(ok) = self {
            ok.describe(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_nfs::attr::Device;

    fn keys(what: &impl Describe) -> Vec<&'static str> {
        let mut operation = Operation::new("CREATE");
        what.describe(&mut operation);
        operation.fields.iter().map(|field| field.key).collect()
    }

    #[test]
    fn special_files_are_told_from_regular_ones() {
        let plain = NewAttributes { mode: Some(0o640), size: Some(0), ..NewAttributes::default() };
        let create = |attributes| Create { directory: Handle([1; 32]), name: "name".into(), attributes };
        assert_eq!(keys(&create(plain)), ["directory", "name", "mode", "size"]);
        let device = plain.with_type(FileType::Block, Device { major: 8, minor: 1 });
        assert_eq!(keys(&create(device)), ["directory", "name", "file_type", "major", "minor", "mode"]);
        let pipe = plain.with_type(FileType::Fifo, Device::default());
        assert_eq!(keys(&create(pipe)), ["directory", "name", "file_type", "mode"]);
        let regular = plain.with_type(FileType::Regular, Device::default());
        assert_eq!(keys(&create(regular)), ["directory", "name", "mode", "size"]);
    }
}
