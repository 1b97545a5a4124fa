//! Names: looking up, making, removing, renaming, listing.

use super::{Describe, Operation, Value};
use rpcrdma_nfs::v3::{
    Create, CreateHow, Created, Handle, Link, LinkInfo, Lookup, LookupOk, MakeDirectory, MakeNode, Name, NodeKind,
    ReadDirectory, ReadDirectoryOk, ReadDirectoryPlus, ReadDirectoryPlusOk, ReadLink, ReadLinkOk, Remove,
    RemoveDirectory, Rename, RenameInfo, Specification, SymbolicLink, Verifier, WeakCache,
};

fn in_directory<'a>(to: &'a mut Operation, directory: &Handle, name: &Name) -> &'a mut Operation {
    to.handle("directory", directory).name("name", name.as_slice())
}

impl Describe for Lookup {
    fn describe(&self, to: &mut Operation) {
        in_directory(to, &self.directory, &self.name);
    }
}

impl Describe for LookupOk {
    fn describe(&self, to: &mut Operation) {
        to.handle("file", &self.file);
        if let Some(attributes) = &self.attributes {
            attributes.describe(to);
        }
    }
}

impl Describe for ReadLink {
    fn describe(&self, to: &mut Operation) {
        to.handle("link", &self.link);
    }
}

impl Describe for ReadLinkOk {
    fn describe(&self, to: &mut Operation) {
        to.name("path", self.path.as_slice()).is_target();
    }
}

impl Describe for Create {
    fn describe(&self, to: &mut Operation) {
        in_directory(to, &self.directory, &self.name);
        match &self.how {
            CreateHow::Unchecked(attributes) => attributes.describe(to.put("how", Value::Word("unchecked"))),
            CreateHow::Guarded(attributes) => attributes.describe(to.put("how", Value::Word("guarded"))),
            CreateHow::Exclusive(Verifier(verifier)) => {
                to.put("how", Value::Word("exclusive")).put("verifier", Value::Verifier(*verifier));
            }
        }
    }
}

impl Describe for MakeDirectory {
    fn describe(&self, to: &mut Operation) {
        self.attributes.describe(in_directory(to, &self.directory, &self.name));
    }
}

impl Describe for SymbolicLink {
    fn describe(&self, to: &mut Operation) {
        in_directory(to, &self.directory, &self.name).name("path", self.path.as_slice()).is_target();
        self.attributes.describe(to);
    }
}

impl Describe for MakeNode {
    fn describe(&self, to: &mut Operation) {
        in_directory(to, &self.directory, &self.name);
        let device = |to: &mut Operation, device: &Specification| {
            to.number("major", device.major).number("minor", device.minor);
        };
        match &self.kind {
            NodeKind::Block(attributes, of) => {
                device(to.put("file_type", Value::Word("block device")), of);
                attributes.describe(to);
            }
            NodeKind::Character(attributes, of) => {
                device(to.put("file_type", Value::Word("character device")), of);
                attributes.describe(to);
            }
            NodeKind::Socket(attributes) => attributes.describe(to.put("file_type", Value::Word("socket"))),
            NodeKind::Fifo(attributes) => attributes.describe(to.put("file_type", Value::Word("named pipe"))),
            NodeKind::Other(number) => {
                to.number("file_type", *number);
            }
        }
    }
}

impl Describe for Created {
    fn describe(&self, to: &mut Operation) {
        if let Some(file) = &self.file {
            to.handle("file", file);
        }
        if let Some(attributes) = &self.attributes {
            attributes.describe(to);
        }
    }
}

impl Describe for Remove {
    fn describe(&self, to: &mut Operation) {
        in_directory(to, &self.directory, &self.name);
    }
}

impl Describe for RemoveDirectory {
    fn describe(&self, to: &mut Operation) {
        in_directory(to, &self.directory, &self.name);
    }
}

impl Describe for Rename {
    fn describe(&self, to: &mut Operation) {
        to.handle("from_directory", &self.from_directory).name("from", self.from.as_slice());
        to.handle("to_directory", &self.to_directory).is_target().name("to", self.to.as_slice());
    }
}

impl Describe for Link {
    fn describe(&self, to: &mut Operation) {
        to.handle("file", &self.file);
        to.handle("directory", &self.directory).is_target().name("name", self.name.as_slice());
    }
}

/// The attributes before and after say nothing beyond the status.
macro_rules! without_fields {
    ($($type:ty),*) => {$(
        impl Describe for $type {
            fn describe(&self, _: &mut Operation) {}
        }
    )*};
}

without_fields!(WeakCache, RenameInfo, LinkInfo);

impl Describe for ReadDirectory {
    fn describe(&self, to: &mut Operation) {
        to.handle("directory", &self.directory).number("cookie", self.cookie).number("count", self.count);
        if self.cookie != 0 {
            to.put("verifier", Value::Verifier(self.verifier.0));
        }
    }
}

impl Describe for ReadDirectoryPlus {
    fn describe(&self, to: &mut Operation) {
        to.handle("directory", &self.directory).number("cookie", self.cookie);
        to.number("dircount", self.directory_count).number("maxcount", self.max_count);
        if self.cookie != 0 {
            to.put("verifier", Value::Verifier(self.verifier.0));
        }
    }
}

impl Describe for ReadDirectoryOk {
    fn describe(&self, to: &mut Operation) {
        to.number("entries", self.entries.len() as u64).flag("eof", self.end);
        to.put("verifier", Value::Verifier(self.verifier.0));
    }
}

impl Describe for ReadDirectoryPlusOk {
    fn describe(&self, to: &mut Operation) {
        to.number("entries", self.entries.len() as u64).flag("eof", self.end);
        to.put("verifier", Value::Verifier(self.verifier.0));
    }
}
