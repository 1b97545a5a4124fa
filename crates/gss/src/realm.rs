//! Kerberos realms for tests: MIT's own KDC as an ordinary process in a temporary folder, at an address of its own.
//!
//! [`within`] runs a test in a process of its own, as the library reads its settings from the environment. Where the
//! KDC is not installed the test says so and does nothing.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs, io,
    net::{Ipv4Addr, SocketAddrV4, TcpListener},
    path::{Path, PathBuf},
    process::{self, Child, Command, Output, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// The realm's name.
pub const REALM: &str = "TEST.EXAMPLE";
/// The service that has a key in [`Realm::keytab`].
pub const SERVICE: &str = "nfs@localhost";
/// The users, each with its name as password and with a key in [`Realm::users`].
pub const USERS: [&str; 2] = ["alice", "bob"];

/// Programs that a realm needs, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 4] =
    [("krb5kdc", "krb5-kdc"), ("kdb5_util", "krb5-kdc"), ("kadmin.local", "krb5-admin-server"), ("kinit", "krb5-user")];
/// How often [`Realm::start`] tries to make a realm.
const ATTEMPTS: usize = 4;
/// How long the KDC may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);
/// The variable by which a test's own process knows the folder of its realm.
const FOLDER: &str = "RPCRDMA_TEST_REALM";
/// The KDC's log in the folder of its realm.
const LOG: &str = "kdc.log";

/// The Debian packages that are missing.
pub fn missing() -> Vec<&'static str> {
    let mut packages: Vec<_> =
        PROGRAMS.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}

/// Where a program is. The folders of administrators' programs count, too.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Runs `test`, whose name in its program is `name`, in a process of its own, with the library's settings for a new
/// realm.
///
/// # Panics
/// If the test fails, or the program has no test of that name.
pub fn within(name: &str, test: impl FnOnce(&Realm)) {
    if let Some(folder) = env::var_os(FOLDER) {
        return test(&Realm { folder: folder.into(), running: None });
    }
    let missing = missing();
    if !missing.is_empty() {
        return eprintln!("{name}: nothing is tested, as {} is not installed", missing.join(", "));
    }
    let realm = Realm::start().expect("a realm");
    let program = env::current_exe().expect("the test's program");
    let output = Command::new(program)
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .envs(realm.environment())
        .env(FOLDER, realm.folder())
        .output()
        .expect("the test's process");
    let told = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{told}\n{failed}");
    // The findings of the test, or a note that something was not tested.
    eprint!("{failed}");
}

/// A realm. Dropping it ends its KDC.
pub struct Realm {
    folder: PathBuf,
    running: Option<Running>,
}

/// The parts of a realm that belong to the process that has started it.
struct Running {
    kdc: Child,
    #[allow(dead_code, reason = "its drop removes the folder")]
    folder: TempDir,
}

impl Running {
    /// Waits until the KDC has its sockets, which it says in its log. That something listens at the address would not
    /// tell whose it is.
    fn wait_for(&mut self, log: &Path) -> io::Result<()> {
        let begin = Instant::now();
        while !fs::read_to_string(log).unwrap_or_default().contains("commencing operation") {
            if self.kdc.try_wait()?.is_some() || begin.elapsed() > PATIENCE {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the KDC does not listen"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Where the next KDC of this process listens. No other KDC has this address at the same time: all KDCs let others
/// listen at their address and port (SO_REUSEPORT), and a client of one realm would be answered with another's keys.
///
/// # Errors
/// If no port is free.
fn unshared() -> io::Result<SocketAddrV4> {
    static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    // Processes have different addresses, the KDCs of one process different ports.
    let address = address_of(process::id());
    loop {
        let port = TcpListener::bind((address, 0))?.local_addr()?.port();
        if TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return Ok(SocketAddrV4::new(address, port));
        }
    }
}

/// The loopback address of a process, whose number has at most 22 bits.
fn address_of(process: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x7f40_0000 | process & 0x3f_ffff)
}

impl Realm {
    /// Makes a realm with a service and users, and starts its KDC.
    ///
    /// # Errors
    /// If a program is missing or fails.
    pub fn start() -> io::Result<Self> {
        // A program that listens at all addresses may take a free port a moment later.
        (1..ATTEMPTS).find_map(|_| Self::try_start().ok()).map_or_else(Self::try_start, Ok)
    }

    fn try_start() -> io::Result<Self> {
        let temporary = TempDir::new()?;
        let folder = temporary.path().to_owned();
        let at = unshared()?;
        fs::write(folder.join("krb5.conf"), client_settings(at))?;
        fs::write(folder.join("kdc.conf"), kdc_settings(&folder, at))?;
        let mut realm = Self { folder, running: None };
        realm.run("kdb5_util", &["create", "-s", "-r", REALM, "-P", "master"])?;
        realm.administer("addprinc -randkey nfs/localhost")?;
        realm.administer(&format!("ktadd -k {} nfs/localhost", realm.keytab().display()))?;
        for user in USERS {
            realm.administer(&format!("addprinc -pw {user} {user}"))?;
            realm.administer(&format!("ktadd -norandkey -k {} {user}", realm.users().display()))?;
        }
        let kdc = realm.command("krb5kdc")?.arg("-n").stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let log = realm.folder.join(LOG);
        realm.running.insert(Running { kdc, folder: temporary }).wait_for(&log)?;
        Ok(realm)
    }

    /// The folder with all files of the realm.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The service's keys.
    pub fn keytab(&self) -> PathBuf {
        self.folder.join("service.keytab")
    }

    /// The users' keys.
    pub fn users(&self) -> PathBuf {
        self.folder.join("users.keytab")
    }

    /// The environment variables of a process in this realm.
    pub fn environment(&self) -> [(&'static str, OsString); 5] {
        let file = |kind: &str, name: &str| {
            let mut value = OsString::from(kind);
            value.push(self.folder.join(name));
            value
        };
        [
            ("KRB5_CONFIG", file("", "krb5.conf")),
            ("KRB5_KDC_PROFILE", file("", "kdc.conf")),
            ("KRB5CCNAME", file("FILE:", "tickets")),
            ("KRB5_KTNAME", file("FILE:", "service.keytab")),
            ("KRB5RCACHENAME", file("file2:", "replays")),
        ]
    }

    /// Lets clients look for the KDC at a port at which nothing listens. Returns the clients' settings as they were,
    /// and as they are now: each is the whole file `krb5.conf`.
    ///
    /// # Errors
    /// If the settings cannot be read or written, or name no KDC.
    pub fn hide_kdc(&self) -> io::Result<[String; 2]> {
        let file = self.folder.join("krb5.conf");
        let as_they_were = fs::read_to_string(&file)?;
        let (before, after) = as_they_were.split_once("\n  kdc = ").ok_or(io::ErrorKind::InvalidData)?;
        let (_, rest) = after.split_once('\n').ok_or(io::ErrorKind::InvalidData)?;
        let as_they_are = format!("{before}\n  kdc = 127.0.0.1:1\n{rest}");
        fs::write(file, &as_they_are)?;
        Ok([as_they_were, as_they_are])
    }

    /// Gets a ticket for a user into the process's own cache. It is valid for `lifetime`, as in `kinit -l`.
    ///
    /// # Errors
    /// If `kinit` fails.
    pub fn kinit(&self, user: &str, lifetime: &str) -> io::Result<()> {
        let users = self.users();
        let users = users.to_str().ok_or(io::ErrorKind::InvalidInput)?;
        self.run("kinit", &["-l", lifetime, "-k", "-t", users, user]).map(drop)
    }

    /// Gets a ticket for a user into a cache of the user's own, so that several have theirs at a time.
    ///
    /// # Errors
    /// If `kinit` fails.
    pub fn kinit_apart(&self, user: &str, lifetime: &str) -> io::Result<()> {
        let mut command = self.command("kinit")?;
        command.args(["-l", lifetime, "-c"]).arg(self.cache_of(user)).args(["-k", "-t"]).arg(self.users()).arg(user);
        succeeded(&mut command).map(drop)
    }

    /// The user's own cache, as `KRB5CCNAME` names it.
    pub fn cache_of(&self, user: &str) -> OsString {
        let mut cache = OsString::from("FILE:");
        cache.push(self.folder.join(format!("tickets.{user}")));
        cache
    }

    /// Runs a command of `kadmin`.
    ///
    /// # Errors
    /// If it fails.
    pub fn administer(&self, command: &str) -> io::Result<()> {
        self.run("kadmin.local", &["-r", REALM, "-q", command]).map(drop)
    }

    fn command(&self, program: &str) -> io::Result<Command> {
        let file = find(program).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, program.to_owned()))?;
        let mut command = Command::new(file);
        command.envs(self.environment()).stdin(Stdio::null());
        Ok(command)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> io::Result<Output> {
        succeeded(self.command(program)?.args(arguments))
    }
}

/// The output of a program, if it has succeeded.
fn succeeded(command: &mut Command) -> io::Result<Output> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{command:?}: {said}")))
}

impl Drop for Realm {
    fn drop(&mut self) {
        if let Some(Running { kdc, .. }) = &mut self.running {
            // It may have ended by itself; nothing is left to be done then.
            let _ = kdc.kill();
            let _ = kdc.wait();
        }
    }
}

fn client_settings(at: SocketAddrV4) -> String {
    format!(
        "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n \
         dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n\
         [realms]\n {REALM} = {{\n  kdc = {at}\n }}\n\
         [domain_realm]\n localhost = {REALM}\n"
    )
}

fn kdc_settings(folder: &Path, at: SocketAddrV4) -> String {
    let folder = folder.display();
    format!(
        "[kdcdefaults]\n kdc_listen = {at}\n kdc_tcp_listen = {at}\n\
         [realms]\n {REALM} = {{\n  database_name = {folder}/principals\n  key_stash_file = {folder}/stash\n  \
         supported_enctypes = aes256-cts:normal\n }}\n\
         [logging]\n kdc = FILE:{folder}/{LOG}\n admin_server = FILE:{folder}/kadmin.log\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second KDC at the address of a first one would start, and answer some of the first one's clients.
    #[test]
    fn no_two_realms_have_the_same_address() {
        let addresses: BTreeSet<_> = (0..2000).map(|_| unshared().expect("a free port")).collect();
        assert_eq!(addresses.len(), 2000);
        assert!(addresses.iter().all(|at| *at.ip() == address_of(process::id())));
        let of_others: Vec<_> = (0..1 << 22).step_by(1021).map(address_of).collect();
        let different: BTreeSet<_> = of_others.iter().collect();
        assert_eq!(different.len(), of_others.len());
        assert!(of_others.iter().all(Ipv4Addr::is_loopback));
    }
}
