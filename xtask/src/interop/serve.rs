//! `rpcrdma serve` under a job's control: a job can start it, kill it, start it again with the same ports and state,
//! and end it in order.

use super::{
    context::Context,
    exposition::Metrics,
    flavour::Flavour,
    kernel_log, namespace,
    network::Place,
    ports,
    process::{Running, last_lines},
    realm::Realm,
};
use anyhow::bail;
use std::{
    cell::RefCell,
    ffi::OsString,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long the server may take to become ready, and to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(20);

/// With Kerberos, clients must also reach an RDMA server over TCP at this port (RFC 8166 section 8.2.2.1).
pub(super) const KERBEROS_TCP_PORT: u16 = 2_049;

/// Statuses that no operation of version 4 may have: the server's own failure, a call that it did not understand, a
/// refusal to a client that may reclaim.
const NEVER: [&str; 8] =
    ["SERVERFAULT", "IO", "BADXDR", "OP_ILLEGAL", "OP_NOT_IN_SESSION", "NO_GRACE", "RECLAIM_BAD", "RECLAIM_CONFLICT"];

/// How a server is to be started.
pub(super) struct ServeOptions {
    name: String,
    export: PathBuf,
    listeners: usize,
    capture: bool,
    arguments: Vec<String>,
    lease: Option<u32>,
    place: Option<Place>,
    environment: Vec<(&'static str, OsString)>,
    /// The port of NFS over TCP, if TCP is needed.
    tcp_port: Option<u16>,
}

impl ServeOptions {
    /// A server of this folder. Clients' root acts as root if the harness runs as root.
    pub(super) fn new(export: PathBuf) -> Self {
        let arguments = if super::host::is_root() { vec!["--no-root-squash".to_owned()] } else { Vec::new() };
        Self {
            name: "serve".into(),
            export,
            listeners: 1,
            capture: false,
            arguments,
            lease: None,
            place: None,
            environment: Vec::new(),
            tcp_port: None,
        }
    }

    /// Names the server and its files, where a job has several servers.
    pub(super) fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// Sets where it runs and listens, as [`Network::serve`](super::network::Network::serve) does.
    pub(super) fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Sets the number of its RDMA ports.
    pub(super) fn listeners(mut self, count: usize) -> Self {
        self.listeners = count;
        self
    }

    /// Writes a capture of its connections to `NAME.pcapng`.
    pub(super) fn capture(mut self) -> Self {
        self.capture = true;
        self
    }

    /// Sets the lease and the time for reclaims after a restart, in seconds, if it serves version 4.
    pub(super) fn lease(mut self, seconds: u32) -> Self {
        self.lease = Some(seconds);
        self
    }

    /// Makes callers prove who they are, as users of a realm and with these flavours. Then root is an anonymous user.
    pub(super) fn kerberos(mut self, realm: &Realm, flavours: &str) -> Self {
        self.arguments.retain(|argument| argument != "--no-root-squash");
        self.arguments.extend(["--sec".into(), flavours.into(), "--keytab".into()]);
        self.arguments.push(realm.keytab("server").display().to_string());
        self.environment = realm.environment();
        self.tcp_port = Some(KERBEROS_TCP_PORT);
        self
    }

    /// Adds an argument of `rpcrdma serve`.
    pub(super) fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }
}

/// A server.
pub(super) struct Server {
    program: PathBuf,
    dir: PathBuf,
    options: ServeOptions,
    flavour: Flavour,
    ports: Vec<u16>,
    /// The port of NFS over TCP, if the flavour or Kerberos needs it.
    tcp_port: Option<u16>,
    mount_port: u16,
    metrics_port: u16,
    starts: RefCell<usize>,
    running: RefCell<Option<Running>>,
}

impl Server {
    pub(super) fn start_new(context: &Context, options: ServeOptions) -> anyhow::Result<Self> {
        let mut rdma = Vec::new();
        for _ in 0..options.listeners {
            rdma.push(ports::free()?);
        }
        let tcp_port = match options.tcp_port {
            None => context.flavour().is_tcp().then(ports::free).transpose()?,
            port => port,
        };
        let server = Self {
            program: context.program().to_owned(),
            dir: context.dir().to_owned(),
            options,
            flavour: context.flavour(),
            ports: rdma,
            tcp_port,
            mount_port: ports::free()?,
            metrics_port: ports::free()?,
            starts: RefCell::new(0),
            running: RefCell::new(None),
        };
        server.start()?;
        Ok(server)
    }

    /// Starts it, again after [`Self::kill`] or [`Self::stop`], and waits until it is ready.
    pub(super) fn start(&self) -> anyhow::Result<()> {
        *self.starts.borrow_mut() += 1;
        let name = &self.options.name;
        let mut command = namespace::command(self.namespace(), &self.program);
        let address = self.address();
        command.arg("serve").arg(&self.options.export);
        for port in &self.ports {
            command.arg("--listen").arg(format!("{address}:{port}"));
        }
        if let Some(port) = self.tcp_port {
            command.arg("--tcp").arg(format!("{address}:{port}"));
        }
        // `serve` offers NFS version 2 only if an option asks for it.
        if self.flavour.version == "2" {
            command.args(["--nfs", "2"]);
        }
        if self.flavour.is_version_4()
            && let Some(seconds) = self.options.lease.map(|seconds| seconds.to_string())
        {
            command.args(["--lease", &seconds, "--grace", &seconds]);
        }
        command.arg("--mountd").arg(format!("{address}:{}", self.mount_port));
        command.arg("--metrics").arg(format!("127.0.0.1:{}", self.metrics_port));
        command.arg("--state").arg(self.dir.join(format!("{name}-state")));
        command.args(["--json", "--log", "json"]).args(&self.options.arguments);
        command.envs(self.options.environment.iter().cloned());
        if self.options.capture {
            let number = *self.starts.borrow();
            let file = if number == 1 { format!("{name}.pcapng") } else { format!("{name}-{number}.pcapng") };
            command.arg("--capture").arg(self.dir.join(file));
        }
        let out = self.dir.join(format!("{name}.out"));
        let _ = fs::remove_file(&out);
        let mut running = Running::start(command, &out, &self.log())?;
        let end = Instant::now() + PATIENCE;
        while !fs::read_to_string(&out)?.contains("\"ready\"") {
            if running.ended()?.is_some() || Instant::now() > end {
                bail!("the server did not become ready: {}", self.said());
            }
            std::thread::sleep(super::process::LOOK);
        }
        *self.running.borrow_mut() = Some(running);
        Ok(())
    }

    /// Its first RDMA port.
    pub(super) fn port(&self) -> u16 {
        self.ports[0]
    }

    /// All its RDMA ports.
    pub(super) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Its TCP port, if the flavour or Kerberos needs one.
    pub(super) fn tcp_port(&self) -> Option<u16> {
        self.tcp_port.filter(|_| self.flavour.is_tcp())
    }

    /// The port of MOUNT.
    pub(super) fn mount_port(&self) -> u16 {
        self.mount_port
    }

    /// A URL of a path in its export, for our client.
    pub(super) fn url(&self, path: &str) -> String {
        let (address, port) = (self.address(), self.port());
        format!("nfs://{address}:{port}/{}?mountport={}", path.trim_start_matches('/'), self.mount_port)
    }

    /// Where it listens, if not on this machine's loopback.
    pub(super) fn place(&self) -> Option<&Place> {
        self.options.place.as_ref()
    }

    fn address(&self) -> Ipv4Addr {
        self.place().map_or(Ipv4Addr::LOCALHOST, |place| place.address)
    }

    fn namespace(&self) -> Option<&str> {
        self.place().map(|place| place.namespace.as_str())
    }

    /// The folder that it serves.
    pub(super) fn export(&self) -> &Path {
        &self.options.export
    }

    /// Its process, while it runs.
    pub(super) fn process(&self) -> Option<u32> {
        self.running.borrow().as_ref().map(Running::id)
    }

    /// Its log.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.options.name))
    }

    /// Its metrics now.
    pub(super) fn metrics(&self) -> anyhow::Result<Metrics> {
        let port = self.metrics_port;
        namespace::inside(self.namespace(), move || Metrics::fetch(port))
    }

    /// Kills it, as a crash would. [`Self::start`] starts it again.
    pub(super) fn kill(&self) -> anyhow::Result<()> {
        let Some(mut running) = self.running.take() else { bail!("the server does not run") };
        if running.ended()?.is_some() {
            bail!("the server had ended by itself: {}", self.said());
        }
        running.kill();
        Ok(())
    }

    /// Asks it to end (SIGTERM), and fails unless it exits with success.
    pub(super) fn stop(&self) -> anyhow::Result<()> {
        let Some(mut running) = self.running.take() else { bail!("the server does not run") };
        if running.ended()?.is_some() {
            bail!("the server had ended by itself: {}", self.said());
        }
        running.terminate();
        match running.wait_until(Instant::now() + PATIENCE)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("the server ended with {status}: {}", self.said()),
            None => bail!("the server did not end within {} s of SIGTERM: {}", PATIENCE.as_secs(), self.said()),
        }
    }

    /// Stops it and judges its metrics: no connection may have ended because of a violation of either side, and none
    /// may have been refused. Returns the metrics, which also stay in `NAME.metrics`.
    pub(super) fn finish(&self) -> anyhow::Result<Metrics> {
        let metrics = self.metrics()?;
        let file = self.dir.join(format!("{}.metrics", self.options.name));
        fs::write(&file, &metrics.text)?;
        self.stop()?;
        for reason in ["rpcrdma_violation", "fabric_violation", "terminated_by_peer"] {
            let ended = metrics
                .sum("rpcrdma_connections_ended_total", &["transport=\"rdma\"", &format!("reason=\"{reason}\"")]);
            // soft-iWARP is at fault if it assembles a CRC wrongly; the log of its kernel shows each case.
            let excused = if reason == "terminated_by_peer" { kernel_log::split_trailers(&self.dir) } else { 0 };
            if ended > excused as f64 {
                bail!("{ended} connections ended for {reason}; see {} and {}", file.display(), self.log().display());
            }
        }
        for status in NEVER {
            let count = metrics.sum("rpcrdma_nfs4_operations_total", &[&format!("status=\"{status}\"")]);
            if count > 0.0 {
                bail!("{count} operations ended with {status}; see {} and {}", file.display(), self.log().display());
            }
        }
        let errors = metrics.sum("rpcrdma_messages_sent_total", &["kind=\"error\""]);
        if errors > 0.0 {
            bail!("the server answered {errors} messages with RDMA_ERROR; see {}", self.log().display());
        }
        let log = fs::read_to_string(self.log())?;
        if let Some(line) = log.lines().find(|line| line.contains("panicked at")) {
            bail!("the server panicked: {line}; see {}", self.log().display());
        }
        Ok(metrics)
    }

    fn said(&self) -> String {
        let log = self.log();
        let said = fs::read(&log).map(|text| last_lines(&String::from_utf8_lossy(&text), 4)).unwrap_or_default();
        format!("{said}; see {}", log.display())
    }
}
