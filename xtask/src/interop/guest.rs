//! A guest: QEMU with Linux, which runs one shell script and ends, or which the harness kills.

use super::{
    context::Context,
    crash,
    kernel_log::{self, Allowed},
    namespace::Cable,
    network::Tap,
    process::{LOOK, Running, last_lines},
    qemu,
    serve::Server,
};
use anyhow::{Context as _, bail};
use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Goes before each script.
const LIBRARY: &str = include_str!("../../interop/guest/lib.sh");

/// The file in a guest's folder with QEMU's own messages.
pub(super) const QEMU_LOG: &str = "qemu.log";

/// The host's loopback as the guest sees it.
pub(super) const HOST: &str = "10.0.2.2";

/// How long a command in the guest may take.
const COMMAND_PATIENCE: Duration = Duration::from_secs(60);

/// How a guest is to be booted.
pub(super) struct GuestOptions {
    name: String,
    script: String,
    variables: Vec<(String, String)>,
    late: Vec<(String, String)>,
    pub(super) forwards: Vec<(u16, u16)>,
    pub(super) capture: bool,
    pub(super) link: &'static str,
    programs: Vec<PathBuf>,
    tools: bool,
    allowed: Vec<Allowed>,
    pub(super) namespace: Option<String>,
    pub(super) tap: Option<Tap>,
}

impl GuestOptions {
    /// A guest that runs this script (after `lib.sh`). The name becomes its folder's name.
    pub(super) fn new(name: &str, script: &str) -> Self {
        Self {
            name: name.to_owned(),
            script: script.to_owned(),
            variables: vec![("HOST".into(), HOST.into())],
            late: Vec::new(),
            forwards: Vec::new(),
            capture: false,
            link: "siw",
            programs: Vec::new(),
            tools: false,
            allowed: Vec::new(),
            namespace: None,
            tap: None,
        }
    }

    /// Puts another script before the guest's own.
    pub(super) fn before(mut self, script: &str) -> Self {
        self.script = format!("{script}\n{}", self.script);
        self
    }

    /// Sets a variable of the script.
    pub(super) fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.variables.push((name.to_owned(), value.to_string()));
        self
    }

    /// Sets a variable after all others, [`Context::seed`] and [`Context::ops`] included (`SEED`, `OPS`).
    pub(super) fn after_all(mut self, name: &str, value: impl ToString) -> Self {
        self.late.push((name.to_owned(), value.to_string()));
        self
    }

    /// Lets `nfs_mount` mount this server: at its first RDMA port, or in a flavour over TCP at its TCP port
    /// (`NFS_PORTS` has all RDMA ports).
    pub(super) fn mounts(self, server: &Server) -> Self {
        let ports: Vec<_> = server.ports().iter().map(u16::to_string).collect();
        let options = self
            .mounts_at(server.tcp_port().unwrap_or(server.port()), server.mount_port(), "/")
            .set("NFS_PORTS", ports.join(" "));
        match server.place() {
            Some(place) => options.set("HOST", place.address),
            None => options,
        }
    }

    /// Lets `nfs_mount` mount the server at these ports of the host's loopback.
    pub(super) fn mounts_at(self, port: u16, mount_port: u16, export: &str) -> Self {
        self.set("NFS_PORT", port).set("MOUNT_PORT", mount_port).set("EXPORT", export)
    }

    /// Forwards a port of the host to a port of the guest.
    pub(super) fn forward(mut self, host: u16, guest: u16) -> Self {
        self.forwards.push((host, guest));
        self
    }

    /// Writes what the guest's network interface sees to `NAME/wire.pcap`.
    pub(super) fn capture(mut self) -> Self {
        self.capture = true;
        self
    }

    /// Boots the guest at the other end of a cable: then 10.0.2.2 is the loopback there, and the guest reaches
    /// everything else through the cable.
    pub(super) fn inside(mut self, cable: &Cable) -> Self {
        self.namespace = Some(cable.name().to_owned());
        self
    }

    /// Gives the guest a place in a network ([`Network::guest`](super::network::Network::guest) does).
    pub(super) fn on(mut self, tap: Tap) -> Self {
        self.namespace = Some(tap.namespace.clone());
        self.tap = Some(tap);
        self
    }

    /// Its RDMA device: `siw` (soft-iWARP, by itself) or `rxe` (soft-RoCE).
    pub(super) fn link(mut self, link: &'static str) -> Self {
        self.link = link;
        self
    }

    /// Puts a program into the guest as `/job/NAME`.
    pub(super) fn with_program(mut self, program: &Path) -> Self {
        self.programs.push(program.to_owned());
        self
    }

    /// Puts this program into the guest as `/job/xtask` (`xtask fsx` runs there).
    pub(super) fn with_tools(mut self) -> Self {
        self.tools = true;
        self
    }

    /// A line of the kernel's log that this job expects; `*` stands for anything. The reason is for people who read the
    /// job.
    pub(super) fn allow(mut self, pattern: &'static str, reason: &'static str) -> Self {
        self.allowed.push(Allowed { pattern, reason });
        self
    }
}

/// A guest that was booted. Dropping the value kills it.
pub(super) struct Guest {
    options: GuestOptions,
    dir: PathBuf,
    deadline: Instant,
    patience: Duration,
    running: Running,
}

impl Guest {
    pub(super) fn boot(context: &Context, options: GuestOptions) -> anyhow::Result<Self> {
        let dir = context.folder(&options.name)?;
        let flavour = context.flavour();
        let usual = [
            ("GUEST", options.name.clone()),
            ("NFS_VERSION", flavour.version.to_owned()),
            ("NFS_TRANSPORT", flavour.transport.to_owned()),
            ("SEED", context.seed().to_string()),
            ("OPS", context.ops().to_string()),
        ];
        let usual = usual.map(|(name, value)| (name.to_owned(), value));
        let mut variables = String::new();
        for (name, value) in options.variables.iter().chain(&usual).chain(&options.late) {
            variables.push_str(&format!("export {name}='{}'\n", value.replace('\'', "'\\''")));
        }
        fs::write(dir.join("job.sh"), format!("{variables}\n{LIBRARY}\n{}", options.script))?;
        if options.tools {
            // This name works also if a new build has replaced the file since this program started.
            fs::copy("/proc/self/exe", dir.join("xtask")).context("copying this program into the guest")?;
        }
        for program in &options.programs {
            let name = program.file_name().with_context(|| program.display().to_string())?;
            fs::copy(program, dir.join(name)).with_context(|| program.display().to_string())?;
        }
        let command = qemu::command(context, &options, &dir);
        let log = dir.join(QEMU_LOG);
        let running = Running::start(command, &log, &log)?;
        let (deadline, patience) = (context.deadline(), context.patient(COMMAND_PATIENCE));
        Ok(Self { options, dir, deadline, patience, running })
    }

    /// Its folder on the host, `/job` in the guest.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its address, if it has one of its own.
    pub(super) fn address(&self) -> anyhow::Result<Ipv4Addr> {
        let tap = self.options.tap.as_ref();
        Ok(tap.with_context(|| format!("guest {} has no address of its own", self.options.name))?.address)
    }

    /// What its network interface saw, if that was asked for.
    pub(super) fn wire(&self) -> PathBuf {
        self.dir.join("wire.pcap")
    }

    /// What the script printed so far.
    pub(super) fn out(&self) -> String {
        self.text("out.log")
    }

    /// Waits until the script says `mark NAME`.
    pub(super) fn wait_for_mark(&mut self, name: &str) -> anyhow::Result<()> {
        let file = self.dir.join(format!("mark-{name}"));
        while !file.exists() {
            if self.running.ended()?.is_some() || self.dir.join("status").exists() {
                bail!("guest {} ended before it came to {name:?}: {}", self.options.name, self.why());
            }
            if Instant::now() >= self.deadline {
                bail!("guest {} did not come to {name:?} within the budget: {}", self.options.name, self.why());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Whether the script has ended, well or not.
    pub(super) fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.running.ended()?.is_some() || self.dir.join("status").exists())
    }

    /// Ends the script's wait by `await NAME`.
    pub(super) fn say(&self, name: &str) -> anyhow::Result<()> {
        Ok(fs::write(self.dir.join(format!("go-{name}")), [])?)
    }

    /// Runs a shell script in a guest whose own script came to `obey`, and returns what it printed; fails with that
    /// output if its exit status is not 0. The script goes through the shared folder, so the guest need not be
    /// reachable over the network.
    pub(super) fn run(&self, script: &str) -> anyhow::Result<String> {
        let file = |name: &str| self.dir.join(name);
        let name = &self.options.name;
        let _ = fs::remove_file(file("command-status"));
        fs::write(file("command-new"), script)?;
        fs::rename(file("command-new"), file("command"))?;
        let end = (Instant::now() + self.patience).min(self.deadline);
        while !file("command-status").exists() {
            if Instant::now() > end {
                bail!("guest {name} did not run {script:?}; see {}", self.dir.display());
            }
            thread::sleep(LOOK);
        }
        let said = fs::read_to_string(file("command-out"))?;
        match fs::read_to_string(file("command-status"))?.trim() {
            "0" => Ok(said),
            status => {
                bail!("{script:?} in guest {name} ended with {status}: {said}; see {}", file("command-out").display())
            }
        }
    }

    /// Waits for the script's end; fails if a step failed, or a line of the kernel's log is not expected.
    pub(super) fn finish(mut self) -> anyhow::Result<Ended> {
        let name = self.options.name.clone();
        let Some(status) = self.running.wait_until(self.deadline)? else {
            bail!("the budget ended before guest {name} did: {}", self.why());
        };
        let said = fs::read_to_string(self.dir.join("status")).unwrap_or_default();
        match said.trim() {
            "0" => self.judge_log()?,
            "" => bail!("guest {name} died (qemu: {status}): {}", self.why()),
            _ => bail!("guest {name}: {}", self.why()),
        }
        Ok(Ended { dir: self.dir.clone() })
    }

    /// Cuts the guest's power (SIGKILL to QEMU): the host's kernel ends the guest's TCP connections to the host as it
    /// ends those of any process.
    pub(super) fn kill(mut self) -> Ended {
        self.running.kill();
        Ended { dir: self.dir.clone() }
    }

    /// Stops or continues the whole guest (SIGSTOP, SIGCONT to QEMU): its peers hear nothing, and its TCP connections
    /// stay.
    pub(super) fn freeze(&self, frozen: bool) {
        self.running.signal(if frozen { rustix::process::Signal::STOP } else { rustix::process::Signal::CONT });
    }

    /// Fails if the kernel has logged an unexpected line since the script began.
    pub(super) fn judge_log(&self) -> anyhow::Result<()> {
        let log = self.kernel_log();
        let unexpected = kernel_log::unexpected(&log, &self.options.allowed);
        if unexpected.is_empty() {
            return Ok(());
        }
        let shown = unexpected.iter().take(3).copied().collect::<Vec<_>>().join(" | ");
        bail!(
            "guest {}'s kernel said {} unexpected lines: {shown}; see {}",
            self.options.name,
            unexpected.len(),
            self.dir.join(kernel_log::KERNEL_LOG).display()
        )
    }

    /// The kernel's log until now.
    pub(super) fn kernel_log(&self) -> String {
        self.text(kernel_log::KERNEL_LOG)
    }

    fn text(&self, file: &str) -> String {
        fs::read(self.dir.join(file)).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }

    /// Why the script failed, as far as its output, its kernel and QEMU tell, and where to look.
    fn why(&self) -> String {
        let words = [Some(self.said()), self.qemu_said(), crash::last_words(&self.dir)];
        let words = words.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let before = if words.ends_with('\n') { "    " } else { "; " };
        format!(
            "{words}{before}see {} and dmesg.log, console.log, qemu.log beside it",
            self.dir.join("out.log").display()
        )
    }

    fn qemu_said(&self) -> Option<String> {
        let said = last_lines(&self.text(QEMU_LOG), 3);
        (!said.is_empty()).then(|| format!("QEMU said: {said}"))
    }

    /// The end of the script's output, which shows how far it came.
    fn said(&self) -> String {
        let out = self.out();
        match out.lines().find(|line| line.starts_with("FAILED")) {
            Some(line) => {
                let before = out.split_once(line).map_or("", |(before, _)| before);
                format!("{line} (before: {})", last_lines(before, 3))
            }
            None if out.is_empty() => {
                format!("its script did not begin; console: {}", last_lines(&self.text(crash::CONSOLE_LOG), 3))
            }
            None => format!("its output ends with: {}", last_lines(&out, 3)),
        }
    }
}

/// What a guest left.
pub(super) struct Ended {
    dir: PathBuf,
}

impl Ended {
    /// Its folder.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What its network interface saw.
    pub(super) fn wire(&self) -> PathBuf {
        self.dir.join("wire.pcap")
    }

    /// A file that the script or `lib.sh` left.
    pub(super) fn read(&self, file: &str) -> anyhow::Result<String> {
        let path = self.dir.join(file);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }
}
