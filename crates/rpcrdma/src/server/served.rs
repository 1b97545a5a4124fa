//! The server of all exports, with their directories and the state directory.

use super::{
    Options, Result, domain,
    exports::{self, Export, Source},
    files::FileThreads,
    kerberos,
    nfs_versions::{self, Version4Options},
    outside::Sockets,
    threads::Threads,
};
use crate::error::{Context, ensure};
use bytes::Bytes;
use rpcrdma_env::Env;
use rpcrdma_gss::Accounts;
use rpcrdma_nfsd::{
    DirectoryFs, Export as Exported, FileSystem, Groups, Identities, Locks, ManagedGroups, Nfsd, Queue, Squash,
    StateDirectory,
};
use rpcrdma_oncrpc::gss::AcceptGss;
use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::runtime::Handle;

/// The default for how long clients may reclaim locks after a restart: as long as the lease of NFS version 4, whose
/// grace period this is too.
const DEFAULT_GRACE: Duration = Duration::from_secs(90);

/// A server of exports.
pub(super) struct Built {
    pub(super) nfsd: Nfsd,
    pub(super) directories: Vec<DirectoryFs>,
    /// The directory that is removed at the end, if there is one.
    pub(super) temporary: Option<Temporary>,
}

/// The server of the options' exports. Its calls to clients run in the runtime of the caller.
pub(super) fn build(
    options: &Options,
    (env, kerberos): (&Env, Option<Arc<AcceptGss>>),
    files: FileThreads,
    version_4: Version4Options,
) -> Result<Built> {
    let exports = &options.exports;
    for directory in exports.iter().filter_map(Export::path_here) {
        let metadata = std::fs::metadata(directory).with_context(|| directory.display().to_string())?;
        ensure!(metadata.is_dir(), "{}: not a directory", directory.display());
    }
    exports::check(exports)?;
    let (state, temporary) = open_state(options, env)?;
    // One pool of threads for all exports: work in one export waits for work in another only for its turn.
    let queue = Queue::new(Arc::new(files));
    let of = exports.iter().filter_map(Export::path_here).count();
    let mut directories: Vec<DirectoryFs> = Vec::new();
    let mut served: Vec<Arc<dyn FileSystem>> = Vec::new();
    for export in exports {
        served.push(match &export.source {
            Source::Files(files) => files.clone(),
            Source::Directory(path) => {
                let directory = open_directory(options, (path, of), &state, queue.clone(), env)?;
                directories.push(directory.clone());
                Arc::new(directory)
            }
        });
    }
    // No other server with this state directory serves the same files: the first export identifies the server.
    let id = served.first().context("nothing is exported")?.id();
    let exported = exports.iter().zip(served).map(|(export, files)| exported(options, export, files));
    let nfsd = Nfsd::new(exported.collect(), state.secret(), env)?;
    let nfsd = match kerberos {
        Some(flavour) => nfsd.with_contexts(flavour, env),
        None => nfsd,
    };
    let nfsd = match domain::names(options, env)? {
        Some(names) => nfsd.with_names(names),
        None => nfsd,
    };
    let nfsd = match options.manage_gids {
        true => nfsd.with_groups(managed_groups(env)?, env),
        false => nfsd,
    };
    let host_locks = version_4.host_locks;
    let nfsd = nfs_versions::serve(nfsd, options.nfs, version_4, (&state, id, queue.clone()), env)?;
    if !options.has_locks() {
        return Ok(Built { nfsd, directories, temporary });
    }
    // Notices of a restart carry this name; Linux's statd also accepts our address.
    let name = Bytes::copy_from_slice(rustix::system::uname().nodename().to_bytes());
    let outside = Arc::new(Sockets::new(Handle::current(), name.clone(), env));
    let grace = options.grace.or(options.lease).unwrap_or(DEFAULT_GRACE);
    let locks = Locks { state: &state, server: id, name, queue, outside, grace, host_locks };
    Ok(Built { nfsd: nfsd.with_locks(locks, env)?, directories, temporary })
}

/// An export with the options that concern it.
fn exported(options: &Options, export: &Export, files: Arc<dyn FileSystem>) -> Exported {
    let squash = if options.no_root_squash { Squash::None } else { Squash::Root };
    let clients = if export.clients.is_empty() { &options.allow } else { &export.clients };
    Exported::new(&export.path, files)
        .with_read_only(options.read_only || export.read_only)
        .with_identities(Identities { squash, ..Identities::default() })
        .with_allow(clients.clone())
        .with_securities(kerberos::securities(options, export))
}

/// The groups of users, as the machine's databases have them.
struct OfMachine;

impl Groups for OfMachine {
    fn of(&self, uid: u32) -> io::Result<Arc<[u32]>> {
        Ok(Accounts.groups_of(uid)?.into())
    }
}

/// How many threads look up groups: each may wait for a directory of users on another host.
const GROUP_THREADS: usize = 2;

fn managed_groups(env: &Env) -> Result<Arc<ManagedGroups>> {
    let threads = Threads::start("rpcrdma-groups", GROUP_THREADS).context("cannot start threads for --manage-gids")?;
    Ok(ManagedGroups::new(Arc::new(OfMachine), Arc::new(threads), env.clock.clone()))
}

/// A directory that is removed when this is dropped.
pub(super) struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::debug!(%error, "cannot remove a temporary directory");
        }
    }
}

fn open_state(options: &Options, env: &Env) -> Result<(StateDirectory, Option<Temporary>)> {
    let has_directories = options.exports.iter().any(|export| export.path_here().is_some());
    if options.state.is_none() && !has_directories {
        // The data of a file system in memory do not survive a restart, so that its handles need not either.
        let name = format!("rpcrdma-{}-{:016x}", std::process::id(), env.random.next_u64());
        let path = std::env::temp_dir().join(name);
        let state = StateDirectory::open(&path, &*env.random)?;
        return Ok((state, Some(Temporary(path))));
    }
    let state = state_directory(options)?;
    if options.exports.iter().filter_map(Export::path_here).any(|directory| is_served(&state, directory)) {
        // The default place is accepted, because clients do not reach it. A user who names a place can name a better
        // one.
        ensure!(
            options.state.is_none(),
            "--state {}: this lies in the directory that is served; say one outside of it",
            state.display()
        );
        tracing::info!("clients do not see {}, where the server keeps its state", state.display());
    }
    Ok((StateDirectory::open(state, &*env.random)?, None))
}

fn open_directory(
    options: &Options,
    (path, of): (&Path, usize),
    state: &StateDirectory,
    queue: Arc<Queue>,
    env: &Env,
) -> Result<DirectoryFs> {
    let directory = DirectoryFs::open_one_of(of, path, state, queue, env)?;
    if !directory.tells_files_apart() {
        tracing::warn!(
            "{}: this file system gives neither file handles nor birth times: a client that holds the handle of a \
             removed file may be shown the file that took its inode number",
            path.display()
        );
    }
    if let Some(uid) = directory.owner() {
        tracing::info!(
            "every caller has the rights of user {uid} here; callers who say that they are user {uid} are the owner of \
             that user's files, all others have the rights that the modes of the files give to user {uid}"
        );
    }
    Ok(if options.early_answers { directory.with_early_answers() } else { directory })
}

/// Whether `path` lies in the served directory, on the same file system, where clients would reach it. A path that does
/// not exist yet counts as its nearest directory that does.
fn is_served(path: &Path, directory: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|metadata| metadata.dev());
    let Ok(path) = std::path::absolute(path) else { return false };
    let there = path.ancestors().find_map(|above| above.canonicalize().ok());
    match (there.ok_or(()), directory.canonicalize().map_err(|_| ())) {
        (Ok(path), Ok(directory)) => path.starts_with(&directory) && device(&path) == device(&directory),
        _ => false,
    }
}

fn state_directory(options: &Options) -> Result<PathBuf> {
    if let Some(state) = &options.state {
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
