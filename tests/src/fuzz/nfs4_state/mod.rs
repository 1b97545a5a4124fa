//! The state of NFS version 4 against a model: the input chooses what two clients do, how time passes and when the
//! server restarts. The real service runs in this process, and the [model](model) says what it must answer. The model
//! shares no code with the server, and knows only RFC 8881 and the settings of [`world`].
//!
//! ```text
//! world.rs    the server, its time and its disk        model.rs    what has to be
//! session.rs  clients, sessions, slots, restarts       files.rs    opens, locks, stateids
//! data.rs     what is in files, copies, attributes     called.rs   the end of a connection that the server calls
//! zero.rs     a client of minor version 0              delegated.rs  delegations, recalls, returns
//! ```

mod called;
mod data;
mod delegated;
mod files;
mod model;
mod session;
mod world;
mod zero;

use super::mint::Mint;
use data::{Content, DATA_FILES};
use model::{CLIENTS, FILES, Model};
use rpcrdma_nfs::v4::{Handle, SessionId, Status};
use std::collections::BTreeMap;
use world::World;
use zero::Zero;

/// The most steps of one input.
const MAX_STEPS: usize = 400;

/// A run: the server, the model, and how often each status was answered.
struct Run {
    world: World,
    model: Model,
    files: [Handle; FILES],
    /// Files that no client opens, and their contents.
    data_files: [Handle; DATA_FILES],
    data: [Content; DATA_FILES],
    /// A client of minor version 0, and its file.
    zero: Zero,
    zero_file: Handle,
    /// The file that is delegated.
    delegated_file: Handle,
    /// Each client's last session, which may have ended, and its incarnation.
    sessions: [SessionId; CLIENTS],
    incarnations: [u64; CLIENTS],
    seen: BTreeMap<(&'static str, u32), u64>,
}

pub(super) fn sessions(input: &[u8]) {
    played(input);
}

fn played(input: &[u8]) -> BTreeMap<(&'static str, u32), u64> {
    let mut run = Run::new();
    let mut mint = Mint::new(input);
    for _ in 0..MAX_STEPS {
        if mint.is_empty() {
            break;
        }
        run.step(&mut mint);
    }
    run.check_all();
    run.seen
}

impl Run {
    fn step(&mut self, mint: &mut Mint<'_>) {
        (0..CLIENTS).for_each(|client| self.renew(client));
        let (kind, client) = (mint.below(64), mint.below(CLIENTS));
        // Without a session, the server would refuse most operations for that reason alone.
        let known = self.model.clients[client].as_ref();
        let has_session = known.is_some_and(|known| known.session.is_some());
        if !has_session && kind % 4 != 3 {
            return self.greet(client, kind == 0);
        }
        if has_session && kind % 4 == 1 && kind != 9 && !known.is_some_and(|known| known.is_complete) {
            return self.complete(client);
        }
        match kind {
            0 | 1 => self.greet(client, mint.below(8) == 0),
            2 | 3 => self.complete(client),
            4..=8 => self.open(client, mint, false),
            9 => self.open(client, mint, true),
            10 | 11 => self.close(client, mint),
            12 => self.downgrade(client, mint),
            13..=17 => self.lock(client, mint),
            18 | 19 => self.unlock(client, mint),
            20 => self.test_lock(client, mint),
            21 | 22 => self.transfer(client, mint),
            23 | 24 => self.repeat(client, mint),
            25 => self.misuse(client, mint),
            26 | 27 => self.free(client, mint),
            28 => self.wait(mint),
            29 => match mint.below(4) {
                0 => self.restart(),
                _ => self.wait(mint),
            },
            30 => match mint.below(4) {
                0 => self.end_client(client),
                1 => self.end_session(client),
                _ => self.test_states(client),
            },
            31 => self.check_all(),
            32..=47 => self.of_data(client, mint),
            48..=57 => self.of_zero(mint),
            _ => self.of_delegations(client, mint),
        }
    }

    fn saw(&mut self, what: &'static str, status: Status) {
        *self.seen.entry((what, status.0)).or_default() += 1;
    }

    /// Checks that an operation was answered as the model says.
    #[track_caller]
    fn is(&mut self, what: &'static str, status: Status, wanted: Status) {
        assert_eq!(status, wanted, "{what}: the model says {wanted}, the server {status}");
        self.saw(what, status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that never gets far finds nothing: so each of these must happen in the seeds.
    #[test]
    fn the_seeds_have_all_of_it() {
        let mut all = BTreeMap::new();
        for seed in crate::fuzz::seeds("nfs4_state") {
            for (what, count) in played(&seed) {
                *all.entry(what).or_insert(0) += count;
            }
        }
        let wanted = [
            ("SEQUENCE", Status::OK),
            ("SEQUENCE", Status::BADSESSION),
            ("SEQUENCE", Status::SEQ_FALSE_RETRY),
            ("SEQUENCE", Status::SEQ_MISORDERED),
            ("SEQUENCE", Status::BADSLOT),
            ("repeated", Status::OK),
            ("repeated", Status::RETRY_UNCACHED_REP),
            ("RECLAIM_COMPLETE", Status::OK),
            ("RECLAIM_COMPLETE", Status::COMPLETE_ALREADY),
            ("OPEN", Status::OK),
            ("OPEN", Status::SHARE_DENIED),
            ("OPEN", Status::GRACE),
            ("reclaim", Status::OK),
            ("reclaim", Status::NO_GRACE),
            ("OPEN_DOWNGRADE", Status::OK),
            ("OPEN_DOWNGRADE", Status::INVAL),
            ("CLOSE", Status::OK),
            ("CLOSE", Status::OLD_STATEID),
            ("CLOSE", Status::BAD_STATEID),
            ("LOCK", Status::OK),
            ("LOCK", Status::DENIED),
            ("LOCK", Status::OPENMODE),
            ("LOCKT", Status::DENIED),
            ("LOCKU", Status::OK),
            ("READ", Status::LOCKED),
            ("WRITE", Status::OPENMODE),
            ("FREE_STATEID", Status::OK),
            ("FREE_STATEID", Status::LOCKS_HELD),
            ("DESTROY_CLIENTID", Status::CLIENTID_BUSY),
            ("taken", Status::EXPIRED),
            ("OPEN of minor version 0", Status::OK),
            ("OPEN of minor version 0", Status::GRACE),
            ("OPEN of a wrong number", Status::BAD_SEQID),
            ("reclaim of minor version 0", Status::OK),
            ("reclaim of minor version 0", Status::ISDIR),
            ("reclaim of minor version 0", Status::NO_GRACE),
            ("OPEN_CONFIRM", Status::OK),
            ("CLOSE of minor version 0", Status::OK),
            ("LOCK of minor version 0", Status::OK),
            ("LOCK of minor version 0", Status::DENIED),
            ("LOCKU of minor version 0", Status::OK),
            ("RELEASE_LOCKOWNER", Status::LOCKS_HELD),
            ("READ of minor version 0", Status::OK),
            ("READ of minor version 0", Status::OLD_STATEID),
            ("repeated by number", Status::OK),
            ("repeated by XID", Status::OK),
            ("OPEN to be delegated", Status::OK),
            ("OPEN to be delegated", Status::DELAY),
            ("delegated to read", Status::OK),
            ("delegated to write", Status::OK),
            ("CB_RECALL", Status::OK),
            ("DELEGRETURN", Status::OK),
            ("DELEGRETURN", Status::DELEG_REVOKED),
            ("use of what is delegated", Status::DELAY),
            ("WRITE of data", Status::OK),
            ("WRITE of data", Status::GRACE),
            ("ALLOCATE", Status::OK),
            ("DEALLOCATE", Status::OK),
            ("SEEK", Status::OK),
            ("SEEK", Status::NXIO),
            ("READ_PLUS", Status::OK),
            ("CLONE", Status::OK),
            ("CLONE", Status::INVAL),
            ("COPY", Status::OK),
            ("COPY", Status::INVAL),
            ("CB_OFFLOAD", Status::OK),
            ("OFFLOAD_CANCEL", Status::OK),
            ("OFFLOAD_STATUS", Status::BAD_STATEID),
            ("SETXATTR", Status::OK),
            ("SETXATTR", Status::EXIST),
            ("GETXATTR", Status::NOXATTR),
            ("LISTXATTRS", Status::OK),
            ("REMOVEXATTR", Status::OK),
            ("GETATTR of a list", Status::OK),
        ];
        let missing: Vec<_> = wanted.iter().filter(|(what, status)| !all.contains_key(&(*what, status.0))).collect();
        assert!(missing.is_empty(), "never happened: {missing:?} in {all:?}");
    }
}
