//! Which attributes calls that came together share.

use super::*;
use rpcrdma_env::Buffer;

const OWN: &[u8] = b"0123456789";

/// The served file `f`, and what the server says about it at once.
struct Rig {
    scratch: Scratch,
    directory: DirectoryFs,
    caller: Caller,
    file: FileId,
}

impl Rig {
    async fn new() -> Self {
        let scratch = Scratch::new(Ways::default());
        let directory = scratch.open();
        host::write(scratch.served().join("f"), OWN).unwrap();
        let caller = Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let root = directory.inner.root.id;
        let file = directory.lookup(caller.clone(), root, "f".into()).await.unwrap().file;
        directory.open(caller.clone(), file, Access::Both).await.unwrap();
        Self { scratch, directory, caller, file }
    }

    fn size(&self, arrival: Option<Arrival>) -> u64 {
        self.directory.attributes_at_once(self.file, arrival).unwrap().unwrap().size
    }

    /// The size that a read of so many bytes says that the file has, and whether they are its last.
    fn read(&self, count: usize, arrival: Option<Arrival>) -> (u64, bool) {
        let via = Via::caller(self.caller.clone(), self.file).arrived(arrival);
        let buffer = Buffer::from_vec(vec![0; count]);
        let read = self.directory.read_at_once(&via, 0, count, buffer).map_err(drop).expect("it is in memory");
        assert!(read.buffer.filled().iter().zip(OWN).all(|(read, own)| read == own));
        (read.attributes.unwrap().size, read.end)
    }

    /// A program of the host makes the file longer.
    fn append(&self, octets: &[u8]) {
        use std::io::Write as _;
        host::OpenOptions::new().append(true).open(self.scratch.served().join("f")).unwrap().write_all(octets).unwrap();
    }
}

#[tokio::test]
async fn calls_that_came_together_share_what_the_kernel_said() {
    let rig = Rig::new().await;
    let together = Some(Arrival::new());
    assert_eq!((rig.size(together), rig.read(4, together)), (10, (10, false)));
    rig.append(b"more");
    assert_eq!((rig.size(together), rig.read(4, together)), (10, (10, false)), "as it was when they came");
    assert_eq!((rig.size(None), rig.read(4, None)), (14, (14, false)), "a call that came alone");
    let later = Some(Arrival::new());
    assert_eq!((rig.read(4, later), rig.size(later)), ((14, false), 14), "calls that came later");
    assert_eq!(rig.size(together), 14, "and only the last answer is kept");
}

/// Whether a read ends at the end of the file is said about the bytes that it has, not about earlier ones.
#[tokio::test]
async fn the_end_of_the_file_is_looked_for_anew() {
    let rig = Rig::new().await;
    let together = Some(Arrival::new());
    assert_eq!(rig.size(together), 10);
    rig.append(b"more");
    assert_eq!(rig.read(10, together), (14, false));
    let together = Some(Arrival::new());
    assert_eq!(rig.size(together), 14);
    host::OpenOptions::new().write(true).open(rig.scratch.served().join("f")).unwrap().set_len(10).unwrap();
    assert_eq!(rig.read(12, together), (10, true), "as long as it was, the read would not end there");
}

#[tokio::test]
async fn a_change_through_this_server_is_seen_at_once() {
    let rig = Rig::new().await;
    let together = Some(Arrival::new());
    assert_eq!(rig.size(together), 10);
    let via = Via::caller(rig.caller.clone(), rig.file);
    rig.directory.write(via, 10, "more".into(), Stability::Unstable).await.unwrap();
    assert_eq!((rig.size(together), rig.read(4, together)), (14, (14, false)));
}

#[tokio::test]
async fn other_files_share_nothing() {
    let rig = Rig::new().await;
    host::write(rig.scratch.served().join("g"), b"g").unwrap();
    let root = rig.directory.inner.root.id;
    let other = rig.directory.lookup(rig.caller.clone(), root, "g".into()).await.unwrap().file;
    let together = Some(Arrival::new());
    assert_eq!(rig.size(together), 10);
    assert_eq!(rig.directory.attributes_at_once(other, together).unwrap().unwrap().size, 1);
    assert_eq!(rig.size(together), 10);
}
