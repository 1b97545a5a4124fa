//! The outcome of a procedure (`nfsstat3`, RFC 1813 section 2.6).

statuses! {
    /// An outcome: one word. Values that this version does not define are kept as they came. MOUNT's statuses have the
    /// same names and numbers.
    "NFS3";
    PERM = 1, "not the owner";
    NOENT = 2, "no such file or directory";
    IO = 5, "input or output error";
    NXIO = 6, "no such device";
    ACCES = 13, "permission denied";
    EXIST = 17, "it exists already";
    XDEV = 18, "on another file system";
    NODEV = 19, "no such device";
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
    REMOTE = 71, "the file is on a remote file system of the server";
    BADHANDLE = 10001, "not a file handle of this server";
    NOT_SYNC = 10002, "the file has changed since";
    BAD_COOKIE = 10003, "the directory position is no longer valid";
    NOTSUPP = 10004, "not supported";
    TOOSMALL = 10005, "the buffer is too small";
    SERVERFAULT = 10006, "the server failed";
    BADTYPE = 10007, "not a type of file here";
    JUKEBOX = 10008, "not available yet, try again later";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_word_of_its_own() {
        assert!(Status::ALL.is_sorted_by(|a, b| a.0 < b.0), "by number, each once");
        let words: Vec<_> = Status::ALL.iter().map(|status| status.word().unwrap()).collect();
        assert_eq!(words[..3], ["OK", "PERM", "NOENT"]);
        assert!(words.iter().all(|word| word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')), "{words:?}");
        assert_eq!((Status(4711).word(), Status(4711).name()), (None, "NFS3ERR_?"));
    }
}
