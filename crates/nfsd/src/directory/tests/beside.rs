//! Which reads another thread makes although they need not wait.

use super::*;
use crate::{ReadData, Told, Workers};
use futures_util::FutureExt as _;
use rpcrdma_env::{BoxFuture, Buffer};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const LONG: usize = crate::directory::beside::LONG_BYTES;

/// Two threads, one of which moves data. A test can hold the jobs.
#[derive(Default)]
struct Held {
    holds: AtomicBool,
    kept: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Workers for Held {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        match self.holds.load(Relaxed) {
            true => self.kept.lock().unwrap().push(job),
            false => job(),
        }
    }

    fn threads(&self) -> usize {
        2
    }
}

/// A served file of long reads, and the threads.
struct Rig {
    _scratch: Scratch,
    workers: Arc<Held>,
    directory: DirectoryFs,
    caller: Caller,
    file: FileId,
}

impl Rig {
    /// A file that is read without waiting, where the file system can do that.
    async fn new() -> Option<Self> {
        let scratch = Scratch::new(Ways::default());
        let state = StateDirectory::open(scratch.directory.path().join("state"), &*env().random).unwrap();
        let workers = Arc::<Held>::default();
        let mut directory = DirectoryFs::open(&scratch.served(), &state, Queue::new(workers.clone()), &env()).unwrap();
        Arc::get_mut(&mut directory.inner).unwrap().beside = Beside::on(2);
        host::write(scratch.served().join("f"), vec![7; 2 * LONG]).unwrap();
        let caller = Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let root = directory.inner.root.id;
        let file = directory.lookup(caller.clone(), root, "f".into()).await.unwrap().file;
        directory.open(caller.clone(), file, Access::Both).await.unwrap();
        workers.holds.store(true, Relaxed);
        let rig = Self { _scratch: scratch, workers, directory, caller, file };
        let is_in_memory = rig.read(false, LONG).now_or_never().is_some();
        is_in_memory.then_some(rig)
    }

    fn read(&self, is_followed: bool, count: usize) -> BoxFuture<'_, Told<ReadData>> {
        let via = Via::caller(self.caller.clone(), self.file).followed(is_followed);
        self.directory.read(via, 1, count, Buffer::from_vec(vec![0; count]))
    }

    /// The jobs that wait for threads.
    fn kept(&self) -> Vec<Box<dyn FnOnce() + Send>> {
        std::mem::take(&mut self.workers.kept.lock().unwrap())
    }
}

#[tokio::test]
async fn another_thread_makes_a_long_read_if_the_connection_has_something_else_to_do() {
    let Some(rig) = Rig::new().await else { return };
    assert!(rig.read(true, LONG - 1).now_or_never().is_some(), "it is too short");
    let read = rig.read(true, LONG);
    let jobs = rig.kept();
    assert_eq!(jobs.len(), 1);
    jobs.into_iter().for_each(|job| job());
    assert!(read.await.unwrap().buffer.filled() == [7; LONG]);
}

/// proves: NFS3-FAIR-b
#[tokio::test]
async fn a_long_read_waits_for_no_thread() {
    let Some(rig) = Rig::new().await else { return };
    let first = rig.read(true, LONG);
    for _ in 0..3 {
        let read = rig.read(true, LONG).now_or_never().expect("it is made at once");
        assert!(read.unwrap().buffer.filled() == [7; LONG]);
    }
    rig.kept().into_iter().for_each(|job| job());
    first.await.unwrap();
}
