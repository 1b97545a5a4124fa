//! Rights, and what a file system is like.

use super::{Describe, Operation, Value};
use rpcrdma_nfs::v3::{
    Access, AccessOk, FileSystemInfo, FileSystemInfoOk, FileSystemStatus, FileSystemStatusOk, Null, PathConfiguration,
    PathConfigurationOk, access,
};
use rpcrdma_nfs::v4;

/// The rights of ACCESS with the words that name them.
const RIGHTS: [(u32, &str); 9] = [
    (access::READ, "read"),
    (access::LOOKUP, "lookup"),
    (access::MODIFY, "modify"),
    (access::EXTEND, "extend"),
    (access::DELETE, "delete"),
    (access::EXECUTE, "execute"),
    (v4::ops::access::XATTR_READ, "xattr_read"),
    (v4::ops::access::XATTR_WRITE, "xattr_write"),
    (v4::ops::access::XATTR_LIST, "xattr_list"),
];

pub(super) fn rights(rights: u32, to: &mut Operation) {
    let mut unnamed = rights;
    for (bit, name) in RIGHTS {
        to.flag(name, rights & bit != 0);
        unnamed &= !bit;
    }
    if unnamed != 0 {
        to.number("other_rights", unnamed);
    } else if rights == 0 {
        to.put("rights", Value::Word("none"));
    }
}

impl Describe for Null {
    fn describe(&self, _: &mut Operation) {}
}

impl Describe for Access {
    fn describe(&self, to: &mut Operation) {
        rights(self.rights, to.handle("file", &self.file));
    }
}

impl Describe for AccessOk {
    fn describe(&self, to: &mut Operation) {
        rights(self.rights, to);
    }
}

impl Describe for FileSystemStatus {
    fn describe(&self, to: &mut Operation) {
        to.handle("root", &self.root);
    }
}

impl Describe for FileSystemStatusOk {
    fn describe(&self, to: &mut Operation) {
        to.number("total", self.total_bytes).number("free", self.free_bytes);
        to.number("available", self.available_bytes);
        to.number("files", self.total_files).number("free_files", self.free_files);
    }
}

impl Describe for FileSystemInfo {
    fn describe(&self, to: &mut Operation) {
        to.handle("root", &self.root);
    }
}

impl Describe for FileSystemInfoOk {
    fn describe(&self, to: &mut Operation) {
        to.number("rtmax", self.read_max).number("rtpref", self.read_preferred);
        to.number("wtmax", self.write_max).number("wtpref", self.write_preferred);
        to.number("dtpref", self.directory_preferred).number("maxfilesize", self.max_file_bytes);
    }
}

impl Describe for PathConfiguration {
    fn describe(&self, to: &mut Operation) {
        to.handle("file", &self.file);
    }
}

impl Describe for PathConfigurationOk {
    fn describe(&self, to: &mut Operation) {
        to.number("linkmax", self.max_links).number("name_max", self.max_name_bytes);
        to.flag("no_trunc", self.no_truncation).flag("chown_restricted", self.chown_restricted);
        to.flag("case_insensitive", self.case_insensitive).flag("case_preserving", self.case_preserving);
    }
}
