//! `cargo xtask interop`: Linux in a guest mounts our server, and Linux's server serves our client.
//!
//! A guest is QEMU with a Debian kernel and soft-iWARP ([`image`] makes it, `xtask/interop/build-guest.sh` does the
//! work). Its network is QEMU's user-mode one: the host's loopback is 10.0.2.2 in the guest. A guest shares one folder
//! with the host (9p): `/job` in the guest.
//!
//! # Writing a job
//!
//! A job is a function `fn(&Context) -> anyhow::Result<()>` in a file of its own in `jobs/`, with a line in
//! `jobs::JOBS` and, if CI is to hold us to it, an entry in `interop.toml`. A job names the versions of NFS in which it
//! runs, and the transports that carry them (`flavours`, [`flavour`]): each flavour is a job of its own. [`rotation`]
//! says which jobs a run does. In the guest runs a shell script from `xtask/interop/guest/`, included by
//! `include_str!`; `lib.sh` goes before each script (`step`, `fail`, `equal`, `nfs_mount`, `mark`, `await`, ...).
//!
//! ```ignore
//! pub(super) const JOB: Job = Job {
//!     name: "client-hello", about: "...", seconds: 60, guests: 1, scales: false, flavours: flavour::VERSIONS, run,
//! };
//! fn run(context: &Context) -> anyhow::Result<()> {
//!     let server = context.serve(ServeOptions::new(context.folder("export")?))?;   // rpcrdma serve, ready
//!     let guest = GuestOptions::new("client", include_str!("../../../interop/guest/hello.sh"));
//!     let guest = context.boot(guest.mounts(&server).capture())?;                    // runs in the background
//!     guest.wait_for_mark("writing")?;                                               // the script said `mark writing`
//!     server.kill()?; server.start()?;                                               // same ports, same state
//!     guest.say("go on")?;                                                           // it waits: `await "go on"`
//!     // Waits for its end; fails with the step that failed, or a line of the kernel's log.
//!     guest.finish()?;
//!     // Stops it in order; fails if a connection ended for a violation, or it did not exit.
//!     server.finish()?;
//!     Ok(())
//! }
//! ```
//!
//! Faults: [`middlebox::Middlebox`] stands between both ends and cuts, stalls or slows a connection, also in the middle
//! of a chosen kind of FPDU; [`namespace::Cable`] joins a guest whose whole host can vanish; [`serve::Server::kill`],
//! [`guest::Guest::kill`] and [`guest::Guest::freeze`] do what their names say.
//!
//! If each guest needs an address of its own, the job makes a network ([`network::Network`]): there the server can tell
//! the guests apart, they reach each other, and the host can call them, as servers call clients back:
//!
//! ```ignore
//!     let network = context.network(network::ETHERNET)?;                            // 10.77.0.1 is the host
//!     let server = network.serve(ServeOptions::new(context.folder("export")?))?;
//!     // 10.77.0.2 and 10.77.0.3, each $ADDRESS in its script.
//!     let one = network.guest(GuestOptions::new("one", SCRIPT).mounts(&server))?;
//!     let two = network.guest(GuestOptions::new("two", SCRIPT).mounts(&server))?;
//!     network.call(two.address()?, 7)?;                                              // what the guest says there
//!     network.plug(0, false)?;                                                       // pulls the first guest's cable
//! ```
//!
//! A guest whose script ends in `obey` runs the host's commands one by one ([`guest::Guest::run`]), also while its
//! cable is pulled: so the host decides the order in which several guests act.
//!
//! With Kerberos a job has a realm of its own ([`realm::Realm`]), whose KDC runs on the host:
//!
//! ```ignore
//!     let realm = Realm::in_network(context, &network)?;
//!     let server = network.serve(ServeOptions::new(export).kerberos(&realm, "krb5p"))?;
//!     let guest = network.guest(realm.guest(GuestOptions::new("client", SCRIPT).mounts(&server)))?;
//! ```
//!
//! Everything that a job starts ends with it (`Drop`). All files that it leaves are in `target/interop/run/JOB/`, also
//! the output of guests and server: `GUEST/out.log`, `GUEST/dmesg.log`, `GUEST/wire.pcap`, `serve.log`. Every wait ends
//! when the job's budget is over. An error says what went wrong and which file to look at (`Context::failed` names the
//! file). After the job, tshark reads each capture in its folder.
//!
//! Linux shares one transport per address and port: a guest that wants several connections mounts several ports
//! (`ServeOptions::listeners`).

use anyhow::Context as _;
use rotation::{Asked, Plan};
use std::{path::PathBuf, process::ExitCode};

mod context;
mod crash;
mod decrypt;
mod exposition;
mod flavour;
mod guest;
mod host;
mod image;
mod jobs;
mod kernel_log;
mod list;
mod middlebox;
mod mountstats;
mod namespace;
mod network;
mod nfsd;
mod ports;
mod process;
mod protected;
mod qemu;
mod realm;
mod report;
mod rotation;
mod schedule;
mod serve;
mod suites;
mod tree;
mod tshark;
mod versions;
mod wire;

/// Operations of the file system exerciser in a usual run, over all its mounts; budgets are made for these.
const USUAL_OPS: u64 = 50_000;

/// What `cargo xtask interop` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run only jobs whose names contain one of these words (default: the core, and a sixth of the other jobs, which
    /// the date chooses)
    filter: Vec<String>,
    /// Run all jobs
    #[arg(long)]
    all: bool,
    /// Run the core and this sixth of the other jobs, 1 to 6 (default: the date chooses the sixth)
    #[arg(long, value_name = "N")]
    part: Option<u64>,
    /// Version of Debian's kernel, or the beginning of a version
    #[arg(long, value_name = "VERSION", default_value = "6.12")]
    kernel: String,
    /// Print the jobs and end
    #[arg(long)]
    list: bool,
    /// Print the results as JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Number of random operations of the file system exerciser, over all its mounts together; time budgets grow with
    /// this number
    #[arg(long, value_name = "N", default_value_t = USUAL_OPS)]
    ops: u64,
    /// Make all time budgets this many times as long, 1 to 100, for a machine that also does other work
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    patience: u64,
    /// Seed of the random operations (default: a random seed, which the command prints)
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Keep the files that were served and copied, also of jobs that pass
    #[arg(long)]
    keep: bool,
    /// Number of guests that run at a time
    #[arg(long, value_name = "N", default_value_t = 2)]
    guests: usize,
    /// The `rpcrdma` command to judge (default: the command that this repository builds)
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Make the guest, unless it exists already, and end
    #[arg(long)]
    build_only: bool,
    /// Write docs/interop.md from interop.toml and end
    #[arg(long)]
    write_docs: bool,
}

/// Runs the jobs that the arguments name; if one fails, the run fails.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let root = host::root();
    if arguments.write_docs {
        list::write_docs(&root)?;
        return Ok(ExitCode::SUCCESS);
    }
    let asked = Asked { names: &arguments.filter, all: arguments.all, part: arguments.part };
    if arguments.list {
        let listed = match arguments.part {
            None if arguments.filter.is_empty() => rotation::plan(&Asked { all: true, ..asked })?,
            _ => rotation::plan(&asked)?,
        };
        report::list(&listed.jobs);
        return Ok(ExitCode::SUCCESS);
    }
    let Plan { jobs: mut planned, whole, words } = rotation::plan(&asked)?;
    let is_cthon = |job: &&jobs::Job| job.name == jobs::CTHON;
    host::provide_packages()?;
    let image = image::provide(&root, &arguments.kernel)?;
    // A user who names this job gets its failure instead.
    if whole && planned.iter().any(is_cthon) && !suites::has_cthon(&image)? {
        eprintln!(
            "{} is not run, and its claim in interop.toml is not shown: {} cannot be reached, and {} does not name a copy",
            jobs::CTHON,
            suites::CTHON_ADDRESS,
            suites::CTHON_VARIABLE
        );
        planned.retain(|job| !is_cthon(job));
    }
    let mut chosen = planned.clone();
    if !host::is_root() {
        chosen.retain(|job| {
            if job.needs_root() {
                eprintln!(
                    "{} is not run: it needs root, for a server that acts as any user and for networks of its own",
                    job.name
                );
            }
            !job.needs_root()
        });
    }
    namespace::remove_stale();
    if arguments.build_only {
        println!("linux {} in {}", image.version, image.folder.display());
        return Ok(ExitCode::SUCCESS);
    }
    let settings = context::Settings {
        program: match &arguments.program {
            Some(program) => program.canonicalize().with_context(|| program.display().to_string())?,
            None => host::build_program(&root)?,
        },
        run: root.join("target/interop/run"),
        ops: arguments.ops,
        patience: arguments.patience,
        seed: arguments.seed.unwrap_or_else(host::new_seed),
        keep: arguments.keep,
        image,
    };
    eprintln!("{words}");
    eprintln!("linux {}, seed {}, {} operations", settings.image.version, settings.seed, settings.ops);
    let mut results = Vec::new();
    if !settings.image.reference().exists() {
        // Other jobs compare their captures with this job's capture.
        let first = jobs::reference();
        chosen.retain(|job| job.name != first.name);
        results = schedule::run_all(&[first], &settings, arguments.guests);
    }
    results.extend(schedule::run_all(&chosen, &settings, arguments.guests));
    let missing = list::judge(&root, &results, if whole { &planned } else { &[] })?;
    report::write(&root.join("target/interop/results.json"), &settings, &results)?;
    report::print(&results, &missing, arguments.json, &settings)?;
    let passed = missing.is_empty() && results.iter().all(|result| result.failure.is_none());
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
