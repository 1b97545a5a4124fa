//! Checks before anything is opened. They refuse options that contradict each other or with which nothing can be
//! served, and programs that would take each other's calls.

use super::{Options, Result, Rpcbind};
use crate::{Carrier, Error};
use rpcrdma_oncrpc::Service;
use std::{collections::BTreeSet, ops::RangeInclusive, sync::Arc, time::Duration};

/// Descriptors that a server needs beside one for each connection: ports, files, the state.
const OTHER_DESCRIPTORS: u64 = 64;

/// How long a lease and a grace period may be, as with Linux's server. The locks of a client that has gone stay for
/// this time.
const LEASES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3_600);
/// How long a client may make no progress.
const STALLS: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(24 * 3_600);

impl Options {
    /// Refuses options that contradict each other, and those that no server can have. [`Builder::bind`] calls this.
    ///
    /// # Errors
    /// What is wrong: [`Error::is_misuse`] is true of it.
    ///
    /// [`Builder::bind`]: super::Builder::bind
    pub fn check(&self) -> Result<()> {
        let refused = self.contradictions().into_iter().chain(self.out_of_range());
        match refused.into_iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, why)) => Err(Error::misuse(why)),
            None => Ok(()),
        }
    }

    fn contradictions(&self) -> [(bool, &'static str); 12] {
        let (has_4, has_locks, verbs) = (self.nfs.has_4(), self.has_locks(), self.carrier == Carrier::Verbs);
        let has_kerberos = !self.kerberos().is_empty();
        [
            (self.device.is_some() && !verbs, "--device names an RDMA device: say --fabric verbs"),
            (
                self.lease.is_some() && !has_4,
                "--lease works with NFS version 4 only: name the versions to serve with --nfs, such as --nfs 3,4.0,4.1,4.2",
            ),
            (
                self.grace.is_some() && !has_4 && !has_locks,
                "--grace is for clients that lock, and neither NFS version 4 is served nor locks of version 3",
            ),
            (
                !self.host_locks && !has_4 && !has_locks,
                "--host-locks is for what clients lock, and neither NFS version 4 is served nor locks of version 3",
            ),
            (
                (!self.lockd.is_empty() || !self.statd.is_empty()) && !has_locks,
                "--lockd and --statd are for locks of NFS version 3: name it with --nfs, and do not say --locks off",
            ),
            (!self.delegations && !has_4, "--delegations works with NFS version 4 only, which --nfs does not name"),
            (
                self.keytab.is_some() && !has_kerberos,
                "--keytab has the keys of Kerberos: say --sec krb5, krb5i or krb5p, or several of them",
            ),
            (
                self.principals.is_some() && !has_kerberos,
                "--principals says who principals of Kerberos are: say --sec krb5, krb5i or krb5p, or several of them",
            ),
            (
                self.domain.is_some() && !has_4,
                "--domain works with NFS version 4 only: name the versions to serve with --nfs, such as --nfs 3,4.0,4.1,4.2",
            ),
            (verbs && !self.crc, "--no-crc works with software iWARP only: a device checks what it carries by itself"),
            (
                self.rpcbind.is_some() && self.portmapper.is_empty() && self.only_loopback(),
                "--rpcbind: the server listens on loopback only, where other hosts cannot reach it; add --listen",
            ),
            (
                self.rpcbind != Some(Rpcbind::Own) && !self.portmapper.is_empty(),
                "--portmapper says where our own portmapper listens: say --rpcbind own",
            ),
        ]
    }

    fn out_of_range(&self) -> [(bool, &'static str); 4] {
        let is_no_lease = |time: Option<Duration>| time.is_some_and(|time| !LEASES.contains(&time));
        [
            (self.threads == Some(0), "--threads: at least one thread has to serve"),
            (self.max_connections == 0, "--max-connections: at least one connection has to be allowed"),
            (is_no_lease(self.lease) || is_no_lease(self.grace), "--lease and --grace last 1 to 3600 seconds"),
            (!STALLS.contains(&self.stall_timeout), "--stall-timeout lasts 0.5 to 86400 seconds"),
        ]
    }

    /// The text to log if a process that may open `limit` files cannot hold all the connections.
    pub(super) fn too_few_descriptors(&self, limit: Option<u64>) -> Option<String> {
        let connections = self.max_connections;
        let limit = limit.filter(|limit| *limit < u64::from(connections) + OTHER_DESCRIPTORS)?;
        Some(format!(
            "--max-connections: {connections} connections do not fit into this process's limit of {limit} open files \
             (ulimit -n), with {OTHER_DESCRIPTORS} for the rest; clients beyond it wait without an answer"
        ))
    }
}

/// Refuses programs of the embedder's own that would never be called, or would take NFS's calls.
pub(super) fn services(services: &[Arc<dyn Service>], has_files: bool) -> Result<()> {
    let of_nfs = [rpcrdma_nfs::v4::PROGRAM, rpcrdma_nfs::nfsacl::PROGRAM];
    let mut known = BTreeSet::new();
    for service in services {
        let (program, version) = (service.program(), service.version());
        if has_files && of_nfs.contains(&program) {
            return Err(Error::misuse(format!("program {program} belongs to NFS, which the server serves itself")));
        }
        if !known.insert((program, version)) {
            return Err(Error::misuse(format!("version {version} of program {program} is served twice")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Program;

    fn refused(change: impl FnOnce(&mut Options)) -> bool {
        let mut options = Options::default();
        change(&mut options);
        options.check().is_err_and(|error| error.is_misuse())
    }

    #[test]
    fn a_server_without_threads_connections_or_time_is_refused() {
        assert!(!refused(|_| {}));
        assert!(refused(|options| options.threads = Some(0)));
        assert!(refused(|options| options.max_connections = 0));
        for (seconds, is_refused) in [(0, true), (1, false), (3_600, false), (3_601, true)] {
            let time = Some(Duration::from_secs(seconds));
            assert_eq!(refused(|options| options.lease = time), is_refused, "lease {seconds}");
            assert_eq!(refused(|options| options.grace = time), is_refused, "grace {seconds}");
        }
        for (millis, is_refused) in [(0, true), (499, true), (500, false), (86_400_000, false), (86_400_001, true)] {
            assert_eq!(
                refused(|options| options.stall_timeout = Duration::from_millis(millis)),
                is_refused,
                "{millis}"
            );
        }
    }

    #[test]
    fn connections_that_do_not_fit_are_told() {
        let options = Options { max_connections: 100, ..Options::default() };
        assert_eq!(options.too_few_descriptors(None), None);
        assert_eq!(options.too_few_descriptors(Some(164)), None, "just enough");
        assert!(options.too_few_descriptors(Some(163)).unwrap().contains("limit of 163 open files"));
    }

    #[test]
    fn a_program_that_nobody_could_call_is_refused() {
        let programs = |numbers: &[(u32, u32)]| -> Vec<Arc<dyn Service>> {
            numbers.iter().map(|number| -> Arc<dyn Service> { Arc::new(Program::new(*number)) }).collect()
        };
        assert!(services(&programs(&[(0x2000_0001, 1), (0x2000_0001, 2), (0x2000_0002, 1)]), true).is_ok());
        assert!(services(&programs(&[(0x2000_0001, 1), (0x2000_0001, 1)]), true).is_err());
        assert!(services(&programs(&[(100_003, 5)]), true).is_err());
        assert!(services(&programs(&[(100_227, 3)]), true).is_err());
        assert!(services(&programs(&[(100_003, 3)]), false).is_ok(), "NFS of the program's own");
    }
}
