//! The outcomes of procedures (RFC 1094 section 2.3.1).

statuses! {
    /// An outcome (`stat`). Values that the protocol does not define are kept as they came: servers send other error
    /// numbers of Unix, too.
    "NFS";
    PERM = 1, "not the owner";
    NOENT = 2, "no such file or directory";
    IO = 5, "input or output error";
    NXIO = 6, "no such device";
    ACCES = 13, "permission denied";
    EXIST = 17, "it exists already";
    NODEV = 19, "no driver for the device";
    NOTDIR = 20, "not a directory";
    ISDIR = 21, "is a directory";
    FBIG = 27, "the file is or would be too large";
    NOSPC = 28, "no space left";
    ROFS = 30, "the file system is read-only";
    NAMETOOLONG = 63, "the name is too long";
    NOTEMPTY = 66, "the directory is not empty";
    DQUOT = 69, "the quota is used up";
    STALE = 70, "the file is gone";
    WFLUSH = 99, "the server's write cache was written to the disk";
}
