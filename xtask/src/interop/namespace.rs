//! Network namespaces: their names, work inside them, and the removal of namespaces that killed runs have left. Root
//! only.
//!
//! [`Cable`] joins a namespace to this machine, so that the host of a guest can vanish: no FIN, no RST, no
//! acknowledgement. [`Network`](super::network::Network) is a namespace with a job's server and its guests in it.

use super::context::Context;
use anyhow::{Context as _, bail};
use std::{
    ffi::OsStr,
    fs::{self, File},
    net::Ipv4Addr,
    os::fd::AsFd as _,
    path::Path,
    process::Command,
    thread,
};

/// Where `ip netns` keeps them.
const FOLDER: &str = "/run/netns";

/// In a folder with the namespace's name below this one, `ip netns exec` looks for files that replace files of `/etc`.
const FILES: &str = "/etc/netns";

/// The prefix of our namespaces' names.
const PREFIX: &str = "rpcrdma-";

/// A namespace. Dropping the value removes it.
pub(super) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace for a job, and brings up its loopback. The name consists of the process's number and
    /// beginning, and the job.
    pub(super) fn new(context: &Context) -> anyhow::Result<Self> {
        let process = std::process::id();
        let begun = begun(process).context("/proc does not tell when this process began")?;
        let made = Self { name: format!("{PREFIX}{process}-{begun}-{}", context.job()) };
        ip(&["netns", "add", &made.name]).context("a network namespace could not be made")?;
        ip(&["-n", &made.name, "link", "set", "lo", "up"])?;
        Ok(made)
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Gives the programs that [`command`] starts in this namespace a file of `/etc` that replaces this machine's.
    pub(super) fn place(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let folder = Path::new(FILES).join(&self.name);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        fs::write(folder.join(file), text).with_context(|| folder.display().to_string())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = remove(&self.name);
    }
}

/// Removes a namespace, and the files that replaced files of `/etc` in it.
fn remove(name: &str) -> anyhow::Result<()> {
    let _ = fs::remove_dir_all(Path::new(FILES).join(name));
    // This fails, as it should, if the folder still has files of other namespaces.
    let _ = fs::remove_dir(FILES);
    ip(&["netns", "del", name]).map(drop)
}

/// A command that runs a program in a namespace, or here.
pub(super) fn command(namespace: Option<&str>, program: impl AsRef<OsStr>) -> Command {
    let Some(namespace) = namespace else { return Command::new(program) };
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

/// Runs a function in a namespace, or here. Sockets that it makes stay in that namespace.
pub(super) fn inside<T: Send>(
    namespace: Option<&str>,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let Some(name) = namespace else { return work() };
    let file = File::open(Path::new(FOLDER).join(name)).with_context(|| format!("the namespace {name}"))?;
    // A new thread, so that the other threads stay in their namespace.
    let enter = move || {
        let kind = rustix::thread::LinkNameSpaceType::Network;
        rustix::thread::move_into_link_name_space(file.as_fd(), Some(kind)).context("a namespace")?;
        work()
    };
    let joined = thread::scope(|scope| scope.spawn(enter).join());
    joined.unwrap_or_else(|_| bail!("what was done in the namespace {name} panicked"))
}

/// Removes the namespaces of runs that were killed, and ends what still runs in them.
pub(super) fn remove_stale() {
    for entry in fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if owner(&name).is_none_or(|(process, began)| begun(process) == Some(began)) {
            continue;
        }
        let pids = ip(&["netns", "pids", &name]).unwrap_or_default();
        let pids = pids.lines().filter_map(|pid| rustix::process::Pid::from_raw(pid.trim().parse().ok()?));
        for pid in pids {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        if remove(&name).is_ok() {
            eprintln!("removed the network namespace {name} of a run that was killed");
        }
    }
}

/// The process in a namespace's name, and when it began; `None` if the namespace is not ours.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '-');
    let (process, began) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().map(|_job| (process, began))
}

/// When a process began, in ticks since the machine started; `None` if it has ended. Its number and this time identify
/// a process, also when numbers are used again.
fn begun(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    began(&stat)
}

/// The same from the text of `/proc/PID/stat`.
fn began(stat: &str) -> Option<u64> {
    // The program's name, in parentheses, may have spaces. The state stands behind it, and the time of the beginning 19
    // words later.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    // A process in these states has ended, but its parent has not waited for it.
    words.next().filter(|state| !matches!(*state, "Z" | "X"))?;
    words.nth(18)?.parse().ok()
}

/// Runs `ip`, and returns what it prints.
pub(super) fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    let output =
        Command::new("ip").args(arguments).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").output().context("ip")?;
    if !output.status.success() {
        bail!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A namespace that is joined to this machine by a veth pair: one end is the namespace's, the other end is this
/// machine's. To a peer, taking the namespace's end down looks like a host that lost its power.
pub(super) struct Cable {
    namespace: Namespace,
    here: String,
    there: String,
    address: Ipv4Addr,
}

impl Cable {
    /// Makes it.
    pub(super) fn new(context: &Context) -> anyhow::Result<Self> {
        let id = std::process::id();
        let (address, there) = addresses();
        let namespace = Namespace::new(context)?;
        let made = Self { namespace, here: format!("rdm{id}a"), there: format!("rdm{id}b"), address };
        made.make(there).context("a network namespace could not be joined to this machine")?;
        Ok(made)
    }

    fn make(&self, there: Ipv4Addr) -> anyhow::Result<()> {
        let name = self.namespace.name();
        ip(&["link", "add", &self.here, "type", "veth", "peer", "name", &self.there])?;
        ip(&["link", "set", &self.there, "netns", name])?;
        ip(&["addr", "add", &format!("{}/30", self.address), "dev", &self.here])?;
        ip(&["link", "set", &self.here, "up"])?;
        ip(&["-n", name, "addr", "add", &format!("{there}/30"), "dev", &self.there])?;
        self.connect(true)
    }

    /// Connects the namespace to this machine or disconnects it; TCP at either end gets no notice.
    pub(super) fn connect(&self, connected: bool) -> anyhow::Result<()> {
        let state = if connected { "up" } else { "down" };
        ip(&["-n", self.namespace.name(), "link", "set", &self.there, state]).map(drop)
    }

    /// The namespace's name.
    pub(super) fn name(&self) -> &str {
        self.namespace.name()
    }

    /// This machine's address, as seen from inside the namespace.
    pub(super) fn address(&self) -> Ipv4Addr {
        self.address
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = ip(&["link", "del", &self.here]);
    }
}

/// Takes addresses from 169.254/16, which no router forwards: four for each process.
fn addresses() -> (Ipv4Addr, Ipv4Addr) {
    let number = 0xa9fe_4000 | ((std::process::id() & 0xfff) << 2);
    (Ipv4Addr::from(number | 1), Ipv4Addr::from(number | 2))
}

#[cfg(test)]
mod tests {
    use super::{began, begun, inside, ip, owner, remove_stale};
    use crate::interop::host;
    use std::{path::Path, process};

    #[test]
    fn a_name_tells_whose_it_is() {
        assert_eq!(owner("rpcrdma-12-3400-client-two"), Some((12, 3400)));
        for other in ["rpcrdma-12", "rpcrdma-12-3400", "rpcrdma-a-1-b", "docker-1-2-x", ""] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_is_known_by_when_it_began() {
        let here = begun(process::id()).unwrap();
        assert_eq!(begun(process::id()), Some(here));
        assert!(begun(1).unwrap() <= here);
        assert_eq!(begun(u32::MAX), None);
        let stat = |state| format!("7 (a (b) c) {state} 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 280114 9 9");
        assert_eq!(began(&stat("S")), Some(280_114));
        assert_eq!(began(&stat("Z")), None, "it has ended, and nobody has waited for it");
    }

    #[test]
    fn what_a_killed_run_left_is_removed_and_what_a_run_uses_is_not() {
        if !host::is_root() {
            return eprintln!("not run: namespaces are root's");
        }
        let here = process::id();
        let (stale, used) = (format!("rpcrdma-{here}-1-test"), format!("rpcrdma-{here}-{}-test", begun(here).unwrap()));
        // Programs in the namespace have their own /etc/hostname, and removing the namespace removes it.
        let files = Path::new(super::FILES).join(&stale);
        let placed = super::Namespace { name: stale.clone() };
        placed.place("hostname", "there\n").unwrap();
        std::mem::forget(placed);
        for name in [&stale, &used] {
            if let Err(error) = ip(&["netns", "add", name]) {
                return eprintln!("not run: this machine makes no namespaces: {error}");
            }
        }
        let mut left = super::command(Some(&stale), "sleep").arg("60").spawn().unwrap();
        while ip(&["netns", "pids", &stale]).unwrap().trim().is_empty() {
            std::thread::yield_now();
        }
        let mut cat = super::command(Some(&stale), "cat");
        assert_eq!(cat.arg("/etc/hostname").output().unwrap().stdout, b"there\n");
        remove_stale();
        assert!(!files.exists());
        let there = ip(&["netns", "list"]).unwrap();
        assert!(!there.contains(&stale) && there.contains(&used), "{there}");
        assert!(!left.wait().unwrap().success());
        // Nothing listens there, although something listens here.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || Ok(std::net::TcpStream::connect(address).is_ok());
        assert!(inside(None, connect).unwrap() && !inside(Some(&used), connect).unwrap());
        ip(&["netns", "del", &used]).unwrap();
    }
}
