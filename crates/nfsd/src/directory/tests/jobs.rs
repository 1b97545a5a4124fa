//! Which work goes to the program's threads, and what happens if they lose it.

use super::*;
use crate::Workers;
use rustix::io::Errno;
use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Counts the jobs.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Workers for Counted {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        self.0.fetch_add(1, Relaxed);
        job();
    }
}

#[test]
fn what_is_in_memory_is_told_without_another_thread() {
    let scratch = Scratch::new(Ways::default());
    let state = StateDirectory::open(scratch.directory.path().join("state"), &*env().random).unwrap();
    let workers = Arc::new(Counted::default());
    let directory = DirectoryFs::open(&scratch.served(), &state, Queue::new(workers.clone()), &env()).unwrap();
    host::write(scratch.served().join("probe"), "probe").unwrap();
    let probe = host::File::open(scratch.served().join("probe")).unwrap();
    let mut octet = [0];
    let no_wait = rustix::io::ReadWriteFlags::NOWAIT;
    let probed = rustix::io::preadv2(&probe, &mut [io::IoSliceMut::new(&mut octet)], 0, no_wait);
    if !directory.inner.local || !directory.inner.in_memory && probed == Err(Errno::OPNOTSUPP) {
        return; // Some file systems cannot read like that.
    }
    let (directory, identities) = (Arc::new(directory), Identities { squash: Squash::None, ..Identities::default() });
    let export = Export::new("/", directory.clone()).with_identities(identities);
    let client = Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap());
    let file = client.new_file(&client.root(), "file");
    client.write(&file, 0, vec![7; 100_000]).unwrap();
    let before = workers.0.load(Relaxed);
    for offset in [0, 4096, 99_990, 100_000, 200_000] {
        client.read(&file, offset, 4096).unwrap();
    }
    client.attributes(&file).unwrap();
    assert_eq!(workers.0.load(Relaxed), before);
    assert!(client.as_user(77, 77, &[]).read(&file, 0, 10).is_ok());
    let before = before + usize::from(directory.inner.identity.is_privileged());
    assert_eq!(workers.0.load(Relaxed), before, "a connection's thread does not become another caller");
    let known = directory.inner.cache.objects();
    known.iter().for_each(|object| directory.inner.cache.remove(object.id));
    client.read(&file, 0, 10).unwrap();
    let waits = usize::from(!directory.inner.in_memory);
    assert_eq!(workers.0.load(Relaxed), before + waits, "to find it again may take the disk, where there is one");
}

/// Loses every job.
struct Lost;

impl Workers for Lost {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        drop(job);
    }
}

#[test]
fn a_job_that_is_dropped_fails_its_call() {
    let scratch = Scratch::new(Ways::default());
    let state = StateDirectory::open(scratch.directory.path().join("state"), &*env().random).unwrap();
    let lost = DirectoryFs::open(&scratch.served(), &state, Queue::new(Arc::new(Lost)), &env()).unwrap();
    let client = Client::serving(Arc::new(lost));
    assert_eq!(client.lookup(&client.root(), "x").map(|_| ()), Err(Status::SERVERFAULT));
}
