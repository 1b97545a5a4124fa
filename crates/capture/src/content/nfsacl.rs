//! NFSACL: lists in the short form of `getfacl` and `setfacl`, as they were sent and in their order, whether or not
//! they are valid.

use super::{Describe, Operation, Value, info::rights, nfs2};
use rpcrdma_nfs::{
    nfsacl::{Entry, GetAcl, GetAclOk, Lists, SetAcl, entry, mask, v2},
    v3::Attributes,
};
use std::fmt::Write as _;

/// The parts of the lists that a mask names, with the words of the program.
const MASKS: [(u32, &str); 4] = [
    (mask::ACCESS, "acl"),
    (mask::ACCESS_COUNT, "aclcnt"),
    (mask::DEFAULT, "dfacl"),
    (mask::DEFAULT_COUNT, "dfaclcnt"),
];

fn asked(bits: u32, to: &mut Operation) {
    for (bit, name) in MASKS {
        to.flag(name, bits & bit != 0);
    }
    if bits & !mask::ALL != 0 {
        to.put("other_mask", Value::Flags(bits & !mask::ALL));
    }
}

/// `u:1000:rw-`, of a default list `d:u:1000:rw-`; unknown types and rights in hexadecimal.
fn shown(Entry { kind, id, rights }: &Entry, text: &mut String) {
    if kind & entry::OF_DEFAULT != 0 {
        text.push_str("d:");
    }
    let who = match kind & !entry::OF_DEFAULT {
        entry::OWNER => "u:".into(),
        entry::USER => format!("u:{id}"),
        entry::GROUP => "g:".into(),
        entry::NAMED_GROUP => format!("g:{id}"),
        entry::MASK => "m:".into(),
        entry::OTHERS => "o:".into(),
        other => format!("{other:#x}:{id}"),
    };
    let _ = write!(text, "{who}:");
    if *rights > 7 {
        let _ = write!(text, "{rights:#x}");
        return;
    }
    for (bit, letter) in [(4, 'r'), (2, 'w'), (1, 'x')] {
        text.push(if rights & bit != 0 { letter } else { '-' });
    }
}

fn list(entries: &[Entry]) -> String {
    let mut text = String::new();
    for (place, entry) in entries.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        shown(entry, &mut text);
    }
    text
}

impl Describe for Lists {
    fn describe(&self, to: &mut Operation) {
        let [access, default] = self.counts();
        match self.access() {
            Some(acl) => {
                to.name("acl", list(acl.entries()).as_bytes());
            }
            None if self.mask() & mask::ACCESS_COUNT != 0 => {
                to.number("aclcnt", access);
            }
            None => {}
        }
        match self.default() {
            Some(acl) if acl.entries().is_empty() => {
                to.put("dfacl", Value::Word("no default"));
            }
            Some(acl) => {
                to.name("dfacl", list(acl.entries()).as_bytes());
            }
            None if self.mask() & mask::DEFAULT_COUNT != 0 => {
                to.number("dfaclcnt", default);
            }
            None => {}
        }
    }
}

impl Describe for GetAcl {
    fn describe(&self, to: &mut Operation) {
        asked(self.mask, to.handle("file", &self.file));
    }
}

impl Describe for GetAclOk {
    fn describe(&self, to: &mut Operation) {
        self.lists.describe(to);
    }
}

impl Describe for SetAcl {
    fn describe(&self, to: &mut Operation) {
        self.lists.describe(to.handle("file", &self.file));
    }
}

/// SETACL's attributes say nothing beyond the status.
impl Describe for Option<Attributes> {
    fn describe(&self, _: &mut Operation) {}
}

fn handle_2<'a>(handle: &v2::Handle, to: &'a mut Operation) -> &'a mut Operation {
    nfs2::handle("file", handle, to)
}

impl Describe for v2::GetAcl {
    fn describe(&self, to: &mut Operation) {
        asked(self.mask, handle_2(&self.file, to));
    }
}

impl Describe for v2::GetAclOk {
    fn describe(&self, to: &mut Operation) {
        self.lists.describe(to);
    }
}

impl Describe for v2::SetAcl {
    fn describe(&self, to: &mut Operation) {
        self.lists.describe(handle_2(&self.file, to));
    }
}

impl Describe for v2::GetAttributes {
    fn describe(&self, to: &mut Operation) {
        handle_2(&self.file, to);
    }
}

impl Describe for v2::Attributes {
    fn describe(&self, to: &mut Operation) {
        to.put("mode", Value::Mode(self.mode & 0o7777)).number("size", self.size);
        to.number("uid", self.uid).number("gid", self.gid).number("fileid", self.file_id);
    }
}

impl Describe for v2::Access {
    fn describe(&self, to: &mut Operation) {
        rights(self.rights, handle_2(&self.file, to));
    }
}

impl Describe for v2::AccessOk {
    fn describe(&self, to: &mut Operation) {
        rights(self.rights, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_nfs::{nfsacl::List, v3::Handle};

    fn fields(what: &impl Describe) -> Vec<(&'static str, Value)> {
        let mut operation = Operation::new("GETACL");
        what.describe(&mut operation);
        operation.fields.into_iter().map(|field| (field.key, field.value)).collect()
    }

    fn name(text: &str) -> Value {
        Value::Name(bytes::Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn lists_are_shown_as_setfacl_writes_them() {
        let of = |entries: &[(u32, u32, u32)]| {
            List::new(entries.iter().map(|&(kind, id, rights)| Entry { kind, id, rights }).collect()).unwrap()
        };
        let access = of(&[(1, 9, 6), (2, 1000, 7), (4, 9, 4), (8, 50, 1), (16, 0, 5), (32, 0, 0)]);
        let default = of(&[(0x1001, 9, 7), (0x1040, 3, 0x107)]);
        assert_eq!(
            fields(&Lists::new(mask::ALL, access.clone(), default)),
            [
                ("acl", name("u::rw-,u:1000:rwx,g::r--,g:50:--x,m::r-x,o::---")),
                ("dfacl", name("d:u::rwx,d:0x40:3:0x107"))
            ]
        );
        let counts = Lists::new(mask::ACCESS_COUNT | mask::DEFAULT, access, List::default());
        assert_eq!(fields(&counts), [("aclcnt", Value::Number(6)), ("dfacl", Value::Word("no default"))]);
        let asks = GetAcl { file: Handle::new(b"file").unwrap(), mask: mask::ACCESS | mask::DEFAULT_COUNT | 0x30 };
        let keys: Vec<_> = fields(&asks).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["file", "acl", "dfaclcnt", "other_mask"]);
    }
}
