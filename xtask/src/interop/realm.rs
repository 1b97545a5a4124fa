//! A Kerberos realm of a job's own: MIT's KDC as an ordinary process, with keys for a server, a client's machine and
//! two users. It ends when the value is dropped.
//!
//! All its files lie in the job's folder `realm`. `xtask/interop/guest/kerberos.sh`, which goes before a guest's
//! script, tells a guest about the realm.

use super::{
    context::Context,
    guest::{GuestOptions, HOST},
    namespace,
    network::Network,
    ports,
    process::{Running, last_lines},
};
use anyhow::{Context as _, bail};
use std::{
    ffi::OsString,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// The realm's name.
const REALM: &str = "TEST.EXAMPLE";

/// The domain of its machines, and of the users' names in NFS version 4.
const DOMAIN: &str = "test.example";

/// The name in clients' mounts, for which the server has a key.
pub(super) const SERVER: &str = "server.test.example";

/// The name of the guest whose machine has a key.
const CLIENT: &str = "client.test.example";

/// Users with a key. Each guest (`build-guest.sh`) and a server in a job's own network know them by these names.
pub(super) const USERS: [&str; 2] = ["anna", "bert"];

/// The users and groups that a server in a job's own network knows: the same as in guests, and a second group for anna.
const ACCOUNTS: [(&str, &str); 2] = [
    (
        "passwd",
        "root:x:0:0:root:/root:/bin/sh\nanna:x:1000:1000::/tmp:/bin/sh\nbert:x:1001:1001::/tmp:/bin/sh\n\
         nobody:x:65534:65534::/:/bin/false\n",
    ),
    ("group", "root:x:0:\nanna:x:1000:\nbert:x:1001:\ncommon:x:2000:anna\nnogroup:x:65534:\n"),
];

/// The encryption type of keys, which Linux and tshark know.
const ENCRYPTION: &str = "aes256-cts-hmac-sha1-96";

/// The KDC's port, where it has an address of its own: tshark recognizes Kerberos by this port.
const PORT: u16 = 88;

/// How long the KDC may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Goes before the scripts of guests in the realm.
const SCRIPT: &str = include_str!("../../interop/guest/kerberos.sh");

/// A realm.
pub(super) struct Realm {
    folder: PathBuf,
    /// The KDC's address, as guests reach it.
    kdc: SocketAddr,
    _running: Running,
}

impl Realm {
    /// A realm whose KDC is at the host's address in a network, where servers know the realm's users.
    pub(super) fn in_network(context: &Context, network: &Network<'_>) -> anyhow::Result<Self> {
        for (file, text) in ACCOUNTS {
            network.place(file, text)?;
        }
        let at = SocketAddr::from((network.host(), PORT));
        Self::start(context, Some(network.namespace()), at, at)
    }

    /// A realm whose KDC is on this machine's loopback, for guests behind QEMU's own network.
    pub(super) fn on_loopback(context: &Context) -> anyhow::Result<Self> {
        let port = ports::free()?;
        let reached: Ipv4Addr = HOST.parse()?;
        Self::start(context, None, (Ipv4Addr::LOCALHOST, port).into(), (reached, port).into())
    }

    fn start(context: &Context, namespace: Option<&str>, at: SocketAddr, kdc: SocketAddr) -> anyhow::Result<Self> {
        let folder = context.folder("realm")?;
        fs::write(folder.join("krb5.conf"), settings(at))?;
        fs::write(folder.join("kdc.conf"), kdc_settings(&folder, at))?;
        let tool = |program: &str, arguments: &[&str]| run(context, &folder, program, arguments);
        tool("kdb5_util", &["create", "-s", "-r", REALM, "-P", "master"])?;
        let administer = |command: &str| tool("kadmin.local", &["-r", REALM, "-q", command]);
        let machines = [("server", format!("nfs/{SERVER}")), ("machine", format!("host/{CLIENT}"))];
        for (keytab, principal) in machines.into_iter().chain(USERS.map(|user| ("users", user.to_owned()))) {
            administer(&format!("addprinc -randkey {principal}"))?;
            // One keytab has all keys, for programs that read captures.
            for file in [keytab, "all"] {
                let file = folder.join(format!("{file}.keytab"));
                administer(&format!("ktadd -norandkey -k {} {principal}", file.display()))?;
            }
        }
        let mut command = namespace::command(namespace, "/usr/sbin/krb5kdc");
        command.arg("-n").envs(environment(&folder));
        let log = folder.join("kdc.out");
        let mut running = Running::start(command, &log, &log)?;
        let listens = || namespace::inside(namespace, move || Ok(TcpStream::connect(at).is_ok()));
        context.wait_for("the KDC listens", PATIENCE, || {
            if running.ended()?.is_some() {
                bail!("the KDC has ended: {}", last_lines(&fs::read_to_string(&log).unwrap_or_default(), 3));
            }
            listens()
        })?;
        Ok(Self { folder, kdc, _running: running })
    }

    /// A file of keys: `server`, `machine`, `users`, or `all`.
    pub(super) fn keytab(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.keytab"))
    }

    /// The environment variables that put a process on the host into this realm.
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        environment(&self.folder)
    }

    /// Where a user's tickets are.
    pub(super) fn cache(&self, user: &str) -> PathBuf {
        self.folder.join(format!("tickets-{user}"))
    }

    /// Gets a user a ticket, on the host's side of a network.
    pub(super) fn ticket(&self, context: &Context, network: &Network<'_>, user: &str) -> anyhow::Result<()> {
        let mut command = network.command(Path::new("kinit"));
        command.args(["-k", "-t"]).arg(self.keytab("users")).arg("-c").arg(self.cache(user)).arg(user);
        command.envs(self.environment());
        context.run(&format!("kinit-{user}"), command)?.expect_success().map(drop)
    }

    /// A guest in this realm. Its script gets the address of the KDC, and the keys of the machine and the users; a
    /// guest that is a server also gets the server's key.
    pub(super) fn guest(&self, options: GuestOptions) -> GuestOptions {
        let options = options.before(SCRIPT).set("KDC", self.kdc).set("REALM", REALM);
        let options = options.set("DOMAIN", DOMAIN).set("SERVER_NAME", SERVER);
        ["server", "machine", "users"].iter().fold(options, |options, name| options.with_program(&self.keytab(name)))
    }
}

fn environment(folder: &Path) -> Vec<(&'static str, OsString)> {
    let file = |kind: &str, name: &str| {
        let mut value = OsString::from(kind);
        value.push(folder.join(name));
        value
    };
    vec![
        ("KRB5_CONFIG", file("", "krb5.conf")),
        ("KRB5_KDC_PROFILE", file("", "kdc.conf")),
        ("KRB5CCNAME", file("FILE:", "tickets")),
        ("KRB5RCACHENAME", file("file2:", "replays")),
    ]
}

fn run(context: &Context, folder: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(Path::new("/usr/sbin").join(program));
    command.args(arguments).envs(environment(folder));
    context.run("realm", command).and_then(|ended| ended.expect_success()).map(drop).with_context(|| program.to_owned())
}

fn settings(kdc: SocketAddr) -> String {
    format!(
        "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n \
         dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n\
         [realms]\n {REALM} = {{\n  kdc = {kdc}\n }}\n\
         [domain_realm]\n .{DOMAIN} = {REALM}\n"
    )
}

fn kdc_settings(folder: &Path, at: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "[kdcdefaults]\n kdc_listen = {at}\n kdc_tcp_listen = {at}\n\
         [realms]\n {REALM} = {{\n  database_name = {folder}/principals\n  key_stash_file = {folder}/stash\n  \
         supported_enctypes = {ENCRYPTION}:normal\n }}\n\
         [logging]\n kdc = FILE:{folder}/kdc.log\n admin_server = FILE:{folder}/kadmin.log\n"
    )
}
