//! The built server, as a process.

use anyhow::Context as _;
use serde_json::Value;
use std::{
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A port of this machine that the system chooses.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// The program that serves, and its directory.
#[derive(Clone, Debug)]
pub struct Place {
    /// The built command.
    pub program: PathBuf,
    /// The folder with everything that the server needs: `export`, which it serves, `state` and `log`.
    pub folder: PathBuf,
    /// Arguments beyond those of every server here.
    pub more: Vec<String>,
}

/// A server. Dropping the value kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Its address for RDMA.
    pub rdma: SocketAddr,
    /// Its address for MOUNT.
    pub mount: SocketAddr,
    /// Its address for TCP, if it serves over TCP.
    pub tcp: Option<SocketAddr>,
}

impl Place {
    /// Makes a directory in this folder, which the program will serve.
    ///
    /// # Errors
    /// If the directory cannot be made.
    pub fn new(program: &Path, folder: &Path, more: &[String]) -> anyhow::Result<Self> {
        let place = Self { program: program.to_owned(), folder: folder.to_owned(), more: more.to_vec() };
        fs::create_dir_all(place.export()).with_context(|| folder.display().to_string())?;
        // The server may run as root, but clients may not act as root: everybody must be able to write here.
        fs::set_permissions(place.export(), fs::Permissions::from_mode(0o777))?;
        Ok(place)
    }

    /// The served directory.
    pub fn export(&self) -> PathBuf {
        self.folder.join("export")
    }

    /// The server's log: its output except its first line.
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Starts a server, at ports that the system chooses, or at the addresses of an earlier server.
    ///
    /// # Errors
    /// If it does not say that it is ready.
    pub fn start(&self, at: Option<(SocketAddr, SocketAddr)>) -> anyhow::Result<Server> {
        let (rdma, mount) = at.unwrap_or((ANY, ANY));
        let log = OpenOptions::new().create(true).append(true).open(self.log())?;
        let mut command = Command::new(&self.program);
        command.arg("serve").arg(self.export()).arg("--json").arg("--state").arg(self.folder.join("state"));
        command.args(["--listen", &rdma.to_string(), "--mountd", &mount.to_string()]).args(&self.more);
        let program = self.program.display().to_string();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().context(program)?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the server's output")?).read_line(&mut line)?;
        let address = |key: &str| -> anyhow::Result<SocketAddr> {
            let ready: Value = serde_json::from_str(&line).context("the server does not say that it is ready")?;
            Ok(ready["ready"][key][0].as_str().context("no address")?.parse()?)
        };
        let found = address("rdma").and_then(|rdma| Ok((rdma, address("mountd")?)));
        match found {
            Ok((rdma, mount)) => Ok(Server { tcp: address("tcp").ok(), child, rdma, mount }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                let log = fs::read_to_string(self.log()).unwrap_or_default();
                Err(error.context(log.lines().last().unwrap_or("it says nothing").to_owned()))
            }
        }
    }
}

impl Server {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A URL of a file that is served, for the command.
    pub fn url(&self, path: &str) -> String {
        format!("nfs://{}/{path}?mountport={}", self.rdma, self.mount.port())
    }

    /// Whether it has ended by itself, and how.
    pub fn ended(&mut self) -> Option<String> {
        self.child.try_wait().map_or_else(|error| Some(error.to_string()), |ended| ended.map(|how| how.to_string()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
