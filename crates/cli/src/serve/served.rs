//! The server of all exports, with their directories and the state directory.

use super::{
    FileThreads, domain,
    exports::{self, ExportOption},
    given, kerberos,
    nfs_versions::{self, Version4Options},
    outside::Sockets,
    threads::Threads,
};
use crate::{args::ServeArgs, failure::Usage};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use rpcrdma_env::Env;
use rpcrdma_gss::Accounts;
use rpcrdma_nfsd::{
    DirectoryFs, Export, FileSystem, Groups, Identities, Locks, ManagedGroups, Nfsd, Queue, Squash, StateDirectory,
};
use rpcrdma_oncrpc::gss::AcceptGss;
use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// How many descriptors are asked for, if the administrator allows as many: what the served files and some thousands of
/// connections take. The usual soft limit of 1024 is for programs that use select(2).
const DESCRIPTORS: u64 = 65_536;

/// For how long clients may claim locks again after a restart, in seconds, if nothing is said: as long as those of NFS
/// version 4, whose grace period it is, too.
const DEFAULT_GRACE: Duration = Duration::from_secs(90);

/// What the command line exports, `DIR` first.
pub(super) fn exports(args: &ServeArgs) -> Vec<ExportOption> {
    let root = args.dir.clone().map(ExportOption::root);
    root.into_iter().chain(args.export.iter().cloned()).collect()
}

/// The server of these exports, and their directories.
pub(super) fn build(
    args: &ServeArgs,
    exports: &[ExportOption],
    (env, kerberos): (&Env, Option<Arc<AcceptGss>>),
    files: FileThreads,
    version_4: Version4Options,
) -> Result<(Nfsd, Vec<DirectoryFs>)> {
    for ExportOption { directory, .. } in exports {
        let metadata = std::fs::metadata(directory).with_context(|| directory.display().to_string())?;
        ensure!(metadata.is_dir(), "{}: not a directory", directory.display());
    }
    exports::check(exports).map_err(|error| Usage(error.to_string()))?;
    raise_descriptors();
    given::tell_changed(args);
    let state = open_state(args, exports, env)?;
    // One for all: who has work in one export waits for nobody's in another, beyond his turn.
    let runtime = files.handle.clone();
    let queue = Queue::new(Arc::new(files));
    let mut directories: Vec<DirectoryFs> = Vec::new();
    for export in exports {
        directories.push(open_directory(args, (&export.directory, exports.len()), &state, queue.clone(), env)?);
    }
    let squash = if args.no_root_squash { Squash::None } else { Squash::Root };
    let served = exports.iter().zip(&directories).map(|(export, directory)| {
        let clients = if export.clients.is_empty() { &args.allow } else { &export.clients };
        Export::new(&export.path, Arc::new(directory.clone()))
            .with_read_only(args.read_only || export.read_only)
            .with_identities(Identities { squash, ..Identities::default() })
            .with_allow(clients.clone())
            .with_securities(kerberos::securities(args, export))
    });
    let nfsd = Nfsd::new(served.collect(), state.secret(), env)?;
    let nfsd = match kerberos {
        Some(flavour) => nfsd.with_contexts(flavour, env),
        None => nfsd,
    };
    let nfsd = match domain::names(args, env)? {
        Some(names) => nfsd.with_names(names),
        None => nfsd,
    };
    let nfsd = match args.manage_gids {
        true => nfsd.with_groups(managed_groups(env)?, env),
        false => nfsd,
    };
    // No other server with this state directory serves the same directory: the first stands for the server.
    let id = directories.first().context("nothing is exported")?.id();
    let host_locks = version_4.host_locks;
    let nfsd = nfs_versions::serve(nfsd, args.nfs, version_4, (&state, id, queue.clone()), env)?;
    if !given::has_locks(args) {
        return Ok((nfsd, directories));
    }
    // Hosts with locks are told of a restart by this name; Linux's statd goes by our address as well.
    let name = Bytes::copy_from_slice(rustix::system::uname().nodename().to_bytes());
    let outside = Arc::new(Sockets::new(runtime, name.clone(), env));
    let grace = args.grace.or(args.lease).unwrap_or(DEFAULT_GRACE);
    let locks = Locks { state: &state, server: id, name, queue, outside, grace, host_locks };
    Ok((nfsd.with_locks(locks, env)?, directories))
}

/// The groups of users, as the machine's databases have them.
struct OfMachine;

impl Groups for OfMachine {
    fn of(&self, uid: u32) -> io::Result<Arc<[u32]>> {
        Ok(Accounts.groups_of(uid)?.into())
    }
}

/// How many threads ask for them: each may wait for a directory of users on another host.
const GROUP_THREADS: usize = 2;

fn managed_groups(env: &Env) -> Result<Arc<ManagedGroups>> {
    let threads = Threads::start("rpcrdma-groups", GROUP_THREADS).context("cannot start threads for --manage-gids")?;
    Ok(ManagedGroups::new(Arc::new(OfMachine), Arc::new(threads), env.clock.clone()))
}

fn open_state(args: &ServeArgs, exports: &[ExportOption], env: &Env) -> Result<StateDirectory> {
    let state = state_directory(args)?;
    if exports.iter().any(|export| is_served(&state, &export.directory)) {
        // By default it is where it is: clients do not reach it. Who says where it is can say a better place.
        ensure!(
            args.state.is_none(),
            "--state {}: this lies in the directory that is served; say one outside of it",
            state.display()
        );
        tracing::info!("clients do not see {}, where the server keeps its state", state.display());
    }
    Ok(StateDirectory::open(state, &*env.random)?)
}

fn open_directory(
    args: &ServeArgs,
    (path, of): (&Path, usize),
    state: &StateDirectory,
    queue: Arc<Queue>,
    env: &Env,
) -> Result<DirectoryFs> {
    let directory = DirectoryFs::open_one_of(of, path, state, queue, env)?;
    if !directory.tells_files_apart() {
        tracing::warn!(
            "{}: this file system tells neither handles nor birth times: a client that holds the handle of a removed \
             file may be shown the file that took its inode number",
            path.display()
        );
    }
    if let Some(uid) = directory.owner() {
        tracing::info!(
            "every caller has the rights of user {uid} here; callers who say that they are user {uid} are the owner of \
             that user's files, all others have what the files' modes say"
        );
    }
    Ok(if args.early_answers { directory.with_early_answers() } else { directory })
}

/// Allows this process what the administrator allows it.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(DESCRIPTORS);
    if limit.current.is_some_and(|current| current < wanted) {
        // Less is enough to serve, only for fewer clients.
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }) {
            tracing::debug!(%error, "the limit of open files stays");
        }
    }
}

/// Whether clients would reach `path` in the served directory: it lies there, on the same file system. What is not
/// there yet will lie in the nearest directory above it that is.
fn is_served(path: &Path, directory: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|metadata| metadata.dev());
    let Ok(path) = std::path::absolute(path) else { return false };
    let there = path.ancestors().find_map(|above| above.canonicalize().ok());
    match (there.ok_or(()), directory.canonicalize().map_err(|_| ())) {
        (Ok(path), Ok(directory)) => path.starts_with(&directory) && device(&path) == device(&directory),
        _ => false,
    }
}

fn state_directory(args: &ServeArgs) -> Result<PathBuf> {
    if let Some(state) = &args.state {
        return Ok(state.clone());
    }
    if rustix::process::geteuid().is_root() {
        return Ok("/var/lib/rpcrdma".into());
    }
    if let Some(xdg) = std::env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(xdg).join("rpcrdma"));
    }
    let home = std::env::var_os("HOME").context("HOME is not set: say where to keep state with --state")?;
    Ok(PathBuf::from(home).join(".local/state/rpcrdma"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_in_the_served_directory_is_noticed() {
        let scratch = tempfile::tempdir().unwrap();
        let served = scratch.path().join("served");
        std::fs::create_dir_all(served.join("state")).unwrap();
        std::fs::create_dir(scratch.path().join("served-not")).unwrap();
        std::os::unix::fs::symlink(served.join("state"), scratch.path().join("link")).unwrap();
        assert!(is_served(&served.join("state"), &served) && is_served(&served, &served));
        assert!(is_served(&scratch.path().join("link"), &served), "by another name");
        assert!(!is_served(&scratch.path().join("served-not"), &served));
        assert!(is_served(&served.join("not/there/yet"), &served), "it is about to be made there");
        assert!(is_served(&scratch.path().join("link/not-yet"), &served));
        assert!(!is_served(&scratch.path().join("served-not-yet"), &served));
        assert!(!is_served(Path::new("/proc"), Path::new("/")), "what is mounted below is not served");
    }
}
