//! Access control lists (RFC 8881 section 6).

use crate::v4::List;

/// The most entries of a list that are read: what fits into the 64 KiB that Linux reads of a list at most, with short
/// names.
pub const MAX_ACES: usize = 2048;

/// The longest name of a user or group in octets. Linux reads 128 of them.
pub const MAX_PRINCIPAL_BYTES: usize = 256;

xdr_bytes! {
    /// A user or group as text (`utf8str_mixed`): `name@domain`, a decimal number, or one of the special names as
    /// `OWNER@`.
    pub struct Principal: MAX_PRINCIPAL_BYTES;
}

/// A list (`fattr4_acl`).
pub type Acl = List<Ace, MAX_ACES>;

xdr_struct! {
    /// An entry of a list (`nfsace4`).
    pub struct Ace {
        /// What the entry does: one of [`ace::ALLOWED`] to [`ace::ALARM`].
        pub kind: u32,
        /// Flags of [`ace`].
        pub flags: u32,
        /// What is allowed or denied: rights of [`ace`].
        pub rights: u32,
        /// The user or group that the entry is about.
        pub who: Principal,
    }

    /// A list with flags of its own (`nfsacl41`): attributes `dacl` and `sacl`.
    pub struct Acl41 {
        /// 1: inherits by itself; 2: protected; 4: made by default.
        pub flags: u32,
        /// The entries.
        pub entries: Acl,
    }
}

/// Kinds, flags and rights of entries.
pub mod ace {
    /// Kind: allows.
    pub const ALLOWED: u32 = 0;
    /// Kind: denies.
    pub const DENIED: u32 = 1;
    /// Kind: an access is written down.
    pub const AUDIT: u32 = 2;
    /// Kind: an access raises an alarm.
    pub const ALARM: u32 = 3;

    /// Flag: new files inherit it.
    pub const FILE_INHERIT: u32 = 0x01;
    /// Flag: new directories inherit it.
    pub const DIRECTORY_INHERIT: u32 = 0x02;
    /// Flag: it is inherited no further.
    pub const NO_PROPAGATE_INHERIT: u32 = 0x04;
    /// Flag: it applies only to the files and directories that inherit it.
    pub const INHERIT_ONLY: u32 = 0x08;
    /// Flag: accesses that succeed are written down.
    pub const SUCCESSFUL_ACCESS: u32 = 0x10;
    /// Flag: accesses that fail are written down.
    pub const FAILED_ACCESS: u32 = 0x20;
    /// Flag: the name is the name of a group.
    pub const IDENTIFIER_GROUP: u32 = 0x40;
    /// Flag: it was inherited.
    pub const INHERITED: u32 = 0x80;

    /// Right: to read a file's data, to list a directory.
    pub const READ_DATA: u32 = 0x01;
    /// Right: to write a file's data, to make files in a directory.
    pub const WRITE_DATA: u32 = 0x02;
    /// Right: to append to a file, to make directories in a directory.
    pub const APPEND_DATA: u32 = 0x04;
    /// Right: to read named attributes.
    pub const READ_NAMED_ATTRIBUTES: u32 = 0x08;
    /// Right: to write named attributes.
    pub const WRITE_NAMED_ATTRIBUTES: u32 = 0x10;
    /// Right: to execute a file, to look up in a directory.
    pub const EXECUTE: u32 = 0x20;
    /// Right: to remove entries of a directory.
    pub const DELETE_CHILD: u32 = 0x40;
    /// Right: to read basic attributes.
    pub const READ_ATTRIBUTES: u32 = 0x80;
    /// Right: to set times to values other than the present time.
    pub const WRITE_ATTRIBUTES: u32 = 0x100;
    /// Right: to set how long a file is retained.
    pub const WRITE_RETENTION: u32 = 0x200;
    /// Right: to hold a file back from being removed.
    pub const WRITE_RETENTION_HOLD: u32 = 0x400;
    /// Right: to remove the file itself.
    pub const DELETE: u32 = 0x1_0000;
    /// Right: to read the list.
    pub const READ_ACL: u32 = 0x2_0000;
    /// Right: to write the list and the mode.
    pub const WRITE_ACL: u32 = 0x4_0000;
    /// Right: to set owner and group.
    pub const WRITE_OWNER: u32 = 0x8_0000;
    /// Right: to use the file synchronously.
    pub const SYNCHRONIZE: u32 = 0x10_0000;

    /// For attribute `aclsupport`: the server supports allowing entries.
    pub const SUPPORT_ALLOW: u32 = 1;
    /// For attribute `aclsupport`: the server supports denying entries.
    pub const SUPPORT_DENY: u32 = 2;
    /// For attribute `aclsupport`: the server supports audit entries.
    pub const SUPPORT_AUDIT: u32 = 4;
    /// For attribute `aclsupport`: the server supports alarm entries.
    pub const SUPPORT_ALARM: u32 = 8;

    /// Name: the owner of the file.
    pub const OWNER: &str = "OWNER@";
    /// Name: the file's group.
    pub const GROUP: &str = "GROUP@";
    /// Name: everybody, including owner and group.
    pub const EVERYONE: &str = "EVERYONE@";
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

    fn decoded(acl: &impl Encode) -> Result<Acl, DecodeError> {
        let mut encoder = Encoder::new();
        acl.encode(&mut encoder);
        Acl::decode(&mut Decoder::new(encoder.finish().to_bytes().into()))
    }

    fn entry(who: &str) -> Ace {
        Ace { kind: ace::ALLOWED, flags: ace::IDENTIFIER_GROUP, rights: ace::READ_DATA, who: who.into() }
    }

    #[test]
    fn lists_and_names_end_at_their_limits() {
        let of = |count| List::<Ace, { MAX_ACES + 1 }>(vec![entry(ace::EVERYONE); count]);
        assert_eq!(decoded(&of(MAX_ACES)).unwrap().len(), MAX_ACES);
        assert!(matches!(decoded(&of(MAX_ACES + 1)), Err(DecodeError::TooLong { .. })));
        let named = |octets: usize| decoded(&List::<Ace, 1>(vec![entry(&"n".repeat(octets))]));
        assert!(named(MAX_PRINCIPAL_BYTES).is_ok());
        assert!(matches!(named(MAX_PRINCIPAL_BYTES + 1), Err(DecodeError::TooLong { .. })));
    }
}
