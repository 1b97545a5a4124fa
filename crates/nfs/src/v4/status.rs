//! The outcome of an operation (`nfsstat4`: RFC 8881 section 15, RFC 7862 section 11, RFC 8276).

use super::Op;

statuses! {
    /// An outcome: one word, the same in all minor versions. Values that none of them defines are kept as they came.
    "NFS4";
    PERM = 1, "not the owner";
    NOENT = 2, "no such file or directory";
    IO = 5, "input or output error";
    NXIO = 6, "no such device";
    ACCESS = 13, "permission denied";
    EXIST = 17, "it exists already";
    XDEV = 18, "on another file system";
    NOTDIR = 20, "not a directory";
    ISDIR = 21, "is a directory";
    INVAL = 22, "invalid argument";
    FBIG = 27, "the file would be too large";
    NOSPC = 28, "no space left";
    ROFS = 30, "the file system is read-only";
    MLINK = 31, "too many links";
    NAMETOOLONG = 63, "the name is too long";
    NOTEMPTY = 66, "the directory is not empty";
    DQUOT = 69, "the quota is used up";
    STALE = 70, "the file is gone, its handle is stale";
    BADHANDLE = 10001, "not a file handle of this server";
    BAD_COOKIE = 10003, "the directory position is no longer valid";
    NOTSUPP = 10004, "not supported";
    TOOSMALL = 10005, "the buffer is too small";
    SERVERFAULT = 10006, "the server failed";
    BADTYPE = 10007, "not a type of file here";
    DELAY = 10008, "not available yet, try again later";
    SAME = 10009, "the attributes are the same";
    DENIED = 10010, "somebody else holds a lock";
    EXPIRED = 10011, "the lease has expired, and what it held is lost";
    LOCKED = 10012, "another owner holds a conflicting lock";
    GRACE = 10013, "the server waits for clients to reclaim what they held";
    FHEXPIRED = 10014, "the file handle has expired";
    SHARE_DENIED = 10015, "another open denies this access";
    WRONGSEC = 10016, "the security flavour is not accepted here";
    CLID_INUSE = 10017, "the client id belongs to another principal";
    RESOURCE = 10018, "the server has too few resources for this call";
    MOVED = 10019, "the file system is on another server";
    NOFILEHANDLE = 10020, "no current file handle is set";
    MINOR_VERS_MISMATCH = 10021, "the minor version is not served";
    STALE_CLIENTID = 10022, "the client id is not known: the server has restarted";
    STALE_STATEID = 10023, "the stateid is from before a restart of the server";
    OLD_STATEID = 10024, "the stateid has been replaced by a later one";
    BAD_STATEID = 10025, "not a stateid of this client and file";
    BAD_SEQID = 10026, "the sequence number of the owner is not the next";
    NOT_SAME = 10027, "the attributes are not the same";
    LOCK_RANGE = 10028, "the range overlaps one that is locked";
    SYMLINK = 10029, "is a symbolic link";
    RESTOREFH = 10030, "no saved file handle is set";
    LEASE_MOVED = 10031, "a file system of this lease is on another server";
    ATTRNOTSUPP = 10032, "an attribute is not supported";
    NO_GRACE = 10033, "nothing can be reclaimed now";
    RECLAIM_BAD = 10034, "this client did not hold what it reclaims";
    RECLAIM_CONFLICT = 10035, "another client holds what is reclaimed";
    BADXDR = 10036, "the arguments could not be decoded";
    LOCKS_HELD = 10037, "byte-range locks are still held";
    OPENMODE = 10038, "the file was not opened for this access";
    BADOWNER = 10039, "not a user or group of this server";
    BADCHAR = 10040, "a character that is not supported";
    BADNAME = 10041, "not a name that this server supports";
    BAD_RANGE = 10042, "a range that is not supported";
    LOCK_NOTSUPP = 10043, "the lock cannot be changed in one step";
    OP_ILLEGAL = 10044, "no such operation";
    DEADLOCK = 10045, "waiting for the lock would never end (deadlock)";
    FILE_OPEN = 10046, "the file is open";
    ADMIN_REVOKED = 10047, "an administrator took away what was held";
    CB_PATH_DOWN = 10048, "the client cannot be called back";
    BADIOMODE = 10049, "not a layout access mode";
    BADLAYOUT = 10050, "not a layout of this client";
    BAD_SESSION_DIGEST = 10051, "the digest of the session is wrong";
    BADSESSION = 10052, "no such session";
    BADSLOT = 10053, "no such slot";
    COMPLETE_ALREADY = 10054, "reclaiming was completed before";
    CONN_NOT_BOUND_TO_SESSION = 10055, "the connection does not belong to the session";
    DELEG_ALREADY_WANTED = 10056, "the delegation is wanted already";
    BACK_CHAN_BUSY = 10057, "calls to the client are under way";
    LAYOUTTRYLATER = 10058, "no layout now, try again later";
    LAYOUTUNAVAILABLE = 10059, "no layout can be had";
    NOMATCHING_LAYOUT = 10060, "no such layout";
    RECALLCONFLICT = 10061, "a layout is being recalled";
    UNKNOWN_LAYOUTTYPE = 10062, "no such layout type";
    SEQ_MISORDERED = 10063, "the sequence number of the slot is not the next";
    SEQUENCE_POS = 10064, "SEQUENCE is not the first operation";
    REQ_TOO_BIG = 10065, "the call is larger than the session allows";
    REP_TOO_BIG = 10066, "the reply would be larger than the session allows";
    REP_TOO_BIG_TO_CACHE = 10067, "the reply would be larger than the session can remember";
    RETRY_UNCACHED_REP = 10068, "the answer to the call that is repeated was not kept";
    UNSAFE_COMPOUND = 10069, "a retry of this call could not be recovered";
    TOO_MANY_OPS = 10070, "more operations than the session allows";
    OP_NOT_IN_SESSION = 10071, "the operation needs SEQUENCE before it";
    HASH_ALG_UNSUPP = 10072, "the hash algorithm is not supported";
    CLIENTID_BUSY = 10074, "the client still holds state";
    PNFS_IO_HOLE = 10075, "a hole of a sparse layout";
    SEQ_FALSE_RETRY = 10076, "not the call that it claims to repeat";
    BAD_HIGH_SLOT = 10077, "the highest slot is out of range";
    DEADSESSION = 10078, "the session is at its end";
    ENCR_ALG_UNSUPP = 10079, "the encryption algorithm is not supported";
    PNFS_NO_LAYOUT = 10080, "no layout was granted for this";
    NOT_ONLY_OP = 10081, "the operation must be alone";
    WRONG_CRED = 10082, "not the principal whose state this is";
    WRONG_TYPE = 10083, "not the type of file for this operation";
    DIRDELEG_UNAVAIL = 10084, "no directory delegation can be had";
    REJECT_DELEG = 10085, "the client refused the delegation";
    RETURNCONFLICT = 10086, "a layout is being returned";
    DELEG_REVOKED = 10087, "the delegation was taken away";
    PARTNER_NOTSUPP = 10088, "the other server cannot copy between servers";
    PARTNER_NO_AUTH = 10089, "the other server does not allow the copy";
    UNION_NOTSUPP = 10090, "this form of the arguments is not supported";
    OFFLOAD_DENIED = 10091, "the destination does not allow the copy";
    WRONG_LFS = 10092, "the label format is not supported";
    BADLABEL = 10093, "the label is wrong";
    OFFLOAD_NO_REQS = 10094, "the destination cannot copy as asked";
    NOXATTR = 10095, "no such extended attribute";
    XATTR2BIG = 10096, "the extended attribute is too large";
}

impl Status {
    /// Whether the owner of an operation with this outcome counts it, in minor version 0 (RFC 7530 section 9.1.7).
    pub const fn is_counted(self) -> bool {
        // NFS4-7530-9.1.7-b
        !matches!(
            self,
            Self::STALE_CLIENTID
                | Self::STALE_STATEID
                | Self::BAD_STATEID
                | Self::BAD_SEQID
                | Self::BADXDR
                | Self::RESOURCE
                | Self::NOFILEHANDLE
                | Self::MOVED
        )
    }

    /// The outcome of an operation in a minor version that does not have this status: 0 knows those up to
    /// `CB_PATH_DOWN` (RFC 7530 section 13.1).
    #[must_use]
    pub fn in_minor(self, minor: u32, op: Op) -> Self {
        if minor > 0 || self.0 <= Self::CB_PATH_DOWN.0 {
            return self;
        }
        match (self, op) {
            // RFC 7530 section 16.16.5
            (Self::WRONG_TYPE, Op::Open) => Self::SYMLINK,
            (Self::WRONG_TYPE | Self::UNION_NOTSUPP, _) => Self::INVAL,
            (Self::TOO_MANY_OPS | Self::REQ_TOO_BIG | Self::REP_TOO_BIG | Self::REP_TOO_BIG_TO_CACHE, _) => {
                Self::RESOURCE
            }
            (Self::DELEG_REVOKED, _) => Self::BAD_STATEID,
            (Self::WRONG_CRED, _) => Self::ACCESS,
            _ => Self::SERVERFAULT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: NFS4-7530-13.1-a
    #[test]
    fn minor_version_0_is_told_statuses_that_it_has() {
        for status in Status::ALL {
            for op in Op::ALL {
                let told = status.in_minor(0, *op);
                assert!(told.0 <= 10048, "{status} of {op}");
                assert_eq!(told == *status, status.0 <= 10048);
                assert_eq!([1, 2].map(|minor| status.in_minor(minor, *op)), [*status; 2]);
            }
        }
        assert_eq!(Status::WRONG_TYPE.in_minor(0, Op::Open), Status::SYMLINK);
        assert_eq!(Status::WRONG_TYPE.in_minor(0, Op::LockT), Status::INVAL);
        assert_eq!(Status::REP_TOO_BIG.in_minor(0, Op::Read), Status::RESOURCE);
        assert_eq!(Status::BADSESSION.in_minor(0, Op::Read), Status::SERVERFAULT);
    }

    #[test]
    fn every_status_has_a_word_of_its_own() {
        assert!(Status::ALL.is_sorted_by(|a, b| a.0 < b.0), "by number, each once");
        assert_eq!((Status::ALL.len(), Status::XATTR2BIG.0), (113, 10096));
        assert_eq!((Status::DELAY.word(), Status(4711).word()), (Some("DELAY"), None));
        assert_eq!(Status::OK.to_string(), "done (NFS4_OK)");
    }
}
