//! Our client with Linux's nfsd and its GSS helper, in a realm of the job's own: each service in turn, two users, a
//! tree, contexts that nfsd loses in the middle of a copy, and a user without a ticket.

use super::{Job, client_kerberos::SERVICES};
use crate::interop::{
    context::Context,
    decrypt, flavour,
    network::{self, Network},
    nfsd::{Nfsd, NfsdOptions},
    process::{self, Finished, Running},
    protected,
    realm::{self, Realm},
    tree,
    wire::Wire,
};
use anyhow::{Context as _, ensure};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

pub(super) const JOB: Job = Job {
    name: "server-kerberos",
    about: "our client with nfsd and krb5, krb5i and krb5p: two users, a tree both ways, contexts that nfsd loses, no ticket",
    seconds: 400,
    guests: 1,
    scales: false,
    flavours: flavour::ENDS,
    run,
};

/// How often the job makes nfsd forget its contexts during a copy, and the time between.
const FORGETS: usize = 4;
const BETWEEN: Duration = Duration::from_millis(700);

/// How many files this copy has.
const FILES: usize = 60;

/// Makes nfsd forget all contexts: they are entries of a kernel cache, which drops entries older than the given time.
const FORGET: &str = "echo $(($(date +%s) + 2)) >/proc/net/rpc/auth.rpcsec.context/flush";

/// How long a copy may take after nfsd has forgotten for the last time.
const PATIENCE: Duration = Duration::from_secs(60);

const INTEGRITY: &str = "krb5i";

/// Removes files of which our client reads at the end, where no byte is left: empty files, and files that end in a
/// hole. With integrity, nfsd 6.12 sometimes answers such a READ of version 4 with other memory in the place of the
/// checksum, and our client refuses the reply (docs/linux.md).
fn spare_ends(folder: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let (path, metadata) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
        if metadata.is_dir() {
            spare_ends(&path)?;
        } else if metadata.is_file() && (metadata.len() == 0 || path.ends_with("holes")) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Our client as a user of the realm.
struct Ours<'a> {
    context: &'a Context<'a>,
    network: &'a Network<'a>,
    realm: &'a Realm,
    nfsd: &'a Nfsd,
    /// The service that the URL asks for.
    service: &'static str,
}

impl Ours<'_> {
    fn url(&self, path: &str) -> String {
        format!("{}&sec={}", self.nfsd.url(path), self.service)
    }

    fn command(&self, user: &str, arguments: &[&str]) -> Command {
        let mut command = self.network.rpcrdma();
        command.args(arguments).envs(self.realm.environment());
        command.env("KRB5CCNAME", self.realm.cache(user));
        command
    }

    fn run(&self, user: &str, arguments: &[&str]) -> anyhow::Result<Finished> {
        let name = format!("{}-{}-{user}", self.service, arguments[0]);
        process::run(self.context, &name, self.command(user, arguments))
    }

    fn done(&self, user: &str, arguments: &[&str]) -> anyhow::Result<Finished> {
        self.run(user, arguments)?
            .expect_success()
            .with_context(|| format!("as {user}: rpcrdma {}", arguments.join(" ")))
    }

    /// Two users make files: each file must belong to its user.
    fn users(&self) -> anyhow::Result<()> {
        let secret = self.context.dir().join("secret");
        fs::write(&secret, "secret\n")?;
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
        let folder = format!("of-{}", self.service);
        self.done("anna", &["mkdir", &self.url(&folder)])?;
        let file = format!("{folder}/secret");
        self.done("anna", &["put", "-q", &text(&secret), &self.url(&file)])?;
        let owner = self.nfsd.run(&format!("stat -c '%u %a' /exports/{file}"))?;
        ensure!(owner.trim() == "1000 600", "what anna has put is {owner:?}");
        ensure!(self.done("anna", &["cat", &self.url(&file)])?.stdout == "secret\n");
        self.run("bert", &["cat", &self.url(&file)])?.expect_failure("ermission denied")?;
        self.run("bert", &["put", "-q", &text(&secret), &self.url(&format!("{folder}/his"))])?
            .expect_failure("ermission denied")?;
        Ok(())
    }

    /// Copies a tree there and back.
    fn tree(&self, made: &Path) -> anyhow::Result<()> {
        let there = self.url(&format!("of-{}", self.service));
        self.done("anna", &["put", "-q", "-r", &text(made), &there])?;
        let back = self.context.dir().join(format!("trees/back-{}", self.service));
        let from = self.url(&format!("of-{}/made", self.service));
        self.done("anna", &["get", "-q", "-r", &from, &text(&back)])?;
        tree::same(self.context, &format!("compare-{}", self.service), made, &back)?;
        self.done("anna", &["rm", "-r", &from]).map(drop)
    }

    /// nfsd forgets its contexts during a copy to it: the tree must arrive complete.
    fn forgotten(&self, made: &Path) -> anyhow::Result<()> {
        let folder = format!("of-{}", self.service);
        let arguments = ["put", "-q", "-r", &text(made), &self.url(&folder)].map(str::to_owned);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let log = self.context.dir().join(format!("{}-forgotten.log", self.service));
        let mut putting = Running::start(self.command("anna", &arguments), &log, &log)?;
        for _ in 0..FORGETS {
            self.nfsd.run(FORGET)?;
            thread::sleep(BETWEEN);
        }
        let end = Instant::now() + self.context.patient(PATIENCE);
        let status = putting.wait_until(end)?.with_context(|| format!("put did not end; see {}", log.display()))?;
        ensure!(status.success(), "put ended with {status}; see {}", log.display());
        let name = format!("forgotten-{}", self.service);
        let back = self.context.dir().join("trees").join(&name);
        self.done("anna", &["get", "-q", "-r", &self.url(&format!("{folder}/many")), &text(&back)])?;
        tree::same(self.context, &name, made, &back)
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn run(context: &Context) -> anyhow::Result<()> {
    let network = context.network(network::ETHERNET)?;
    let realm = Realm::in_network(context, &network)?;
    let there = network.address(0);
    network.place("hosts", &format!("127.0.0.1 localhost\n{there} {}\n", realm::SERVER))?;
    for user in realm::USERS {
        realm.ticket(context, &network, user)?;
    }
    let options = NfsdOptions::new()
        .called(realm::SERVER)
        .with(|guest| realm.guest(guest).set("SERVER_ADDRESS", there).set("SEC", SERVICES.join(":")).capture());
    let nfsd = network.nfsd(options)?;
    let trees = context.folder("trees")?;
    let (made, many) = (trees.join("made"), trees.join("many"));
    tree::make(&made, context.seed())?;
    tree::make_small(&many, FILES, context.seed())?;
    // Integrity comes last, because it needs files removed.
    for service in ["krb5", "krb5p", INTEGRITY] {
        if service == INTEGRITY && context.flavour().is_version_4() {
            spare_ends(&made)?;
            spare_ends(&many)?;
        }
        let ours = Ours { context, network: &network, realm: &realm, nfsd: &nfsd, service };
        ours.users()?;
        ours.tree(&made)?;
        ours.forgotten(&many)?;
        let said = ours.done("anna", &["ping", "-c", "1", "-v", &ours.url("")])?.stdout;
        ensure!(said.contains("anna@"), "ping -v does not say who one is: {said}");
        // A user without a cache of tickets.
        ours.run("nobody", &["ls", &ours.url("")])?.expect_failure("ticket")?;
    }
    let sys = Ours { context, network: &network, realm: &realm, nfsd: &nfsd, service: "sys" };
    sys.run("anna", &["ls", &sys.url("")])?.expect_failure("krb5")?;

    let wire = nfsd.wire();
    nfsd.finish()?;
    context.note(Wire::read(context, &wire)?.in_short());
    protected::judge(context, &wire)?;
    decrypt::judge(context, &realm, &wire)
}
