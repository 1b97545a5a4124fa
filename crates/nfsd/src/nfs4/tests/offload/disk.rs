//! Disks that do not keep copied data: the client learns that.

use super::*;
use crate::{
    Access, Caller, Changed, Copied, Fault, FileId, FileSystem, MemoryFs, OpenFile, Span, Told, Via, Written, failed,
    nfs4::testing::memory::as_memory,
};
use bytes::Bytes;
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::attr::{self, Change};
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that claims to lose written data, and that cannot always keep it.
struct Losing {
    memory: MemoryFs,
    losses: AtomicU64,
    /// The result of a COMMIT.
    kept: Mutex<Result<(), Fault>>,
    /// How many losses a COMMIT finds.
    loses: AtomicU64,
}

impl FileSystem for Losing {
    as_memory!();

    fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    fn open(&self, caller: Caller, file: FileId, access: Access) -> BoxFuture<'_, Told<Arc<dyn OpenFile>>> {
        self.memory.open(caller, file, access)
    }

    fn write(&self, via: Via, offset: u64, data: Bytes, stability: attr::Stability) -> BoxFuture<'_, Changed<Written>> {
        self.memory.write(via, offset, data, stability)
    }

    fn copy(&self, from: Via, to: Via, span: Span) -> BoxFuture<'_, Changed<Copied>> {
        self.memory.copy(from, to, span)
    }

    fn commit(&self, via: Via, offset: u64, count: u32) -> BoxFuture<'_, Changed<Change>> {
        self.losses.fetch_add(self.loses.load(Ordering::Relaxed), Ordering::Relaxed);
        match *self.kept.lock().unwrap() {
            Ok(()) => self.memory.commit(via, offset, count),
            Err(fault) => Box::pin(std::future::ready(Err(failed(fault)))),
        }
    }
}

/// proves: NFS4-COPY-LOSS-a
#[test]
fn a_client_learns_what_was_lost_of_a_copy() {
    for (kept, loses, ended) in [
        (Ok(()), 0, Ok(ops::Stability::FileSync)),
        // The verifier has changed, or will change: the client learns that by its next COMMIT.
        (Ok(()), 1, Ok(ops::Stability::Unstable)),
        (Err(Fault::Io), 1, Ok(ops::Stability::Unstable)),
        (Err(Fault::Later), 0, Ok(ops::Stability::Unstable)),
        (Err(Fault::NoSpace), 0, Err(Status::NOSPC)),
    ] {
        let memory = MemoryFs::new(64 << 20, &crate::testing::env());
        let file_system = Losing { memory, losses: 7.into(), kept: Mutex::new(kept), loses: loses.into() };
        let server = TestServer::serving(Arc::new(file_system));
        let mut driver = server.shared().tasks.driver().unwrap();
        let (client, _) = client_of(&server, &mut driver, "a");
        let (from, to) = (made(&client, "from"), made(&client, "to"));
        for at in 0..5 {
            client.write(&from.0, from.1, at * MIB, &vec![1; MIB as usize]).unwrap();
        }
        let ends = (&from, &to);
        let verifier = copy_with(&client, ends, copy_args(ends, (0, 0, 0), false)).unwrap().response.verifier;
        drive(&mut driver);
        let client = server.shared().state.client(client.id).unwrap();
        let outcome = client.known_copies().remove(0).outcome().unwrap();
        assert_eq!(outcome.map(|response| response.committed), ended, "{kept:?} {loses}");
        assert!(outcome.is_err() || outcome.unwrap().verifier == verifier, "that of before the copy");
    }
}

/// No call waits for this copy, but its failure is still reported.
#[test]
fn a_disk_that_is_full_is_told_to_the_client_and_in_the_log() {
    let memory = MemoryFs::new(7 << 20, &crate::testing::env());
    let server = TestServer::serving(Arc::new(memory));
    let mut driver = server.shared().tasks.driver().unwrap();
    let (client, _) = client_of(&server, &mut driver, "a");
    let (from, to) = (made(&client, "from"), made(&client, "to"));
    for at in 0..5 {
        client.write(&from.0, from.1, at * MIB, &vec![1; MIB as usize]).unwrap();
    }
    let ends = (&from, &to);
    let state = copy_with(&client, ends, copy_args(ends, (0, 0, 0), false)).unwrap().response.callback.unwrap();
    let told = crate::tests::warnings::warnings(|| {
        drive(&mut driver);
    });
    assert_eq!(status(&client, &to.0, state), Ok((2 * MIB, Some(Status::NOSPC))));
    assert!(told.len() == 1 && told[0].contains("NOSPC") && told[0].contains("procedure=\"COPY\""), "{told:?}");
}
