//! Attributes, reading and writing.

use super::{Describe, Operation, Value};
use rpcrdma_nfs::v3::{
    Attributes, Commit, CommitOk, FileType, GetAttributes, NewAttributes, Read, ReadOk, SetAttributes, SetTime,
    Stability, Write, WriteOk,
};
use rpcrdma_xdr::ItemData;

fn file_type(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Block => "block device",
        FileType::Character => "character device",
        FileType::Symlink => "symbolic link",
        FileType::Socket => "socket",
        FileType::Fifo => "named pipe",
    }
}

fn stability(stability: Stability) -> &'static str {
    match stability {
        Stability::Unstable => "unstable",
        Stability::DataSync => "data_sync",
        Stability::FileSync => "file_sync",
    }
}

impl Describe for Attributes {
    fn describe(&self, to: &mut Operation) {
        to.put("file_type", Value::Word(file_type(self.file_type))).put("mode", Value::Mode(self.mode));
        to.number("size", self.size).number("uid", self.uid).number("gid", self.gid).number("fileid", self.file_id);
    }
}

impl Describe for NewAttributes {
    fn describe(&self, to: &mut Operation) {
        if let Some(mode) = self.mode {
            to.put("mode", Value::Mode(mode));
        }
        for (key, id) in [("uid", self.uid), ("gid", self.gid)] {
            if let Some(id) = id {
                to.number(key, id);
            }
        }
        if let Some(size) = self.size {
            to.number("size", size);
        }
        for (key, now, time) in [("atime", "atime=now", self.accessed), ("mtime", "mtime=now", self.modified)] {
            match time {
                SetTime::Keep => {}
                SetTime::Server => {
                    to.put(key, Value::Word(now));
                }
                SetTime::Client(time) => {
                    to.put(key, Value::Time(time));
                }
            }
        }
    }
}

impl Describe for GetAttributes {
    fn describe(&self, to: &mut Operation) {
        to.handle("file", &self.file);
    }
}

impl Describe for SetAttributes {
    fn describe(&self, to: &mut Operation) {
        to.handle("file", &self.file);
        self.attributes.describe(to);
        if let Some(guard) = self.guard {
            to.put("guard", Value::Time(guard));
        }
    }
}

impl Describe for Read {
    fn describe(&self, to: &mut Operation) {
        to.handle("file", &self.file);
        to.put("count", Value::Count(self.count.into())).put("offset", Value::Offset(self.offset));
    }
}

impl Describe for ReadOk<ItemData> {
    fn describe(&self, to: &mut Operation) {
        to.put("count", Value::Count(self.data.as_slice().len() as u64)).flag("eof", self.end);
    }
}

impl Describe for Write {
    fn describe(&self, to: &mut Operation) {
        to.handle("file", &self.file).put("count", Value::Count(self.data.len() as u64));
        to.put("offset", Value::Offset(self.offset)).put("stability", Value::Word(stability(self.stability)));
    }
}

impl Describe for WriteOk {
    fn describe(&self, to: &mut Operation) {
        to.put("count", Value::Count(self.count.into())).put("committed", Value::Word(stability(self.committed)));
        to.put("verifier", Value::Verifier(self.verifier.0));
    }
}

impl Describe for Commit {
    fn describe(&self, to: &mut Operation) {
        to.handle("file", &self.file);
        to.put("offset", Value::Offset(self.offset)).put("count", Value::Count(self.count.into()));
    }
}

impl Describe for CommitOk {
    fn describe(&self, to: &mut Operation) {
        to.put("verifier", Value::Verifier(self.verifier.0));
    }
}
