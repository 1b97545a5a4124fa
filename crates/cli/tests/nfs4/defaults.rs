//! Where the command listens without options. If other programs of the machine have these ports, the command has to say
//! so.

use super::common::rpcrdma;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
};

const RDMA: &str = "127.0.0.1:20049";
const TCP: &str = "127.0.0.1:2049";

fn serve(scratch: &Path, name: &str, more: &[&str]) -> Command {
    let directory = scratch.join(name);
    fs::create_dir_all(&directory).unwrap();
    let mut command = rpcrdma();
    command.arg("serve").arg(directory).arg("--json").arg("--state").arg(scratch.join("state")).args(more);
    command
}

struct Started {
    child: Child,
    ready: Value,
}

impl Started {
    fn of(command: Command) -> Self {
        Self::try_of(command).expect("the server does not become ready")
    }

    /// `None` if the command ends.
    fn try_of(mut command: Command) -> Option<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Ok(ready) = serde_json::from_str::<Value>(&line) else {
            child.wait().unwrap();
            return None;
        };
        Some(Self { child, ready: ready["ready"].clone() })
    }

    fn listens(&self, service: &str, address: &str) -> bool {
        self.ready[service].as_array().unwrap().iter().any(|told| told == address)
    }

    /// Ends the command. Returns what it has logged.
    fn end(mut self) -> String {
        // SIGTERM, so that the command still writes its log.
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        self.child.wait().unwrap();
        log
    }
}

/// If the port of a default is taken, the server works without it and logs a line; a port named by an option must be
/// available.
/// proves: ULB-5.3-a, ULB-5.3-b
#[test]
fn the_usual_ports_are_taken_where_they_can_be_had() {
    let scratch = tempfile::tempdir().unwrap();
    let at = scratch.path();
    let mount = ["--mountd", "127.0.0.1:0"];
    // From now on the ports are taken: by the first server, or by a program that ran before it.
    let first = Started::try_of(serve(at, "first", &mount));
    if let Some(first) = &first {
        assert!(first.listens("rdma", RDMA) || std::net::TcpStream::connect(RDMA).is_ok());
        assert!(first.listens("tcp", TCP) || std::net::TcpStream::connect(TCP).is_ok());
        let mounted = first.ready["mount"].as_str().unwrap();
        let wanted = match first.listens("rdma", RDMA) {
            true => "mount -t nfs -o proto=rdma,port=20049 127.0.0.1:/ /mnt",
            false => "mount -t nfs 127.0.0.1:/ /mnt",
        };
        assert_eq!(mounted, wanted);
    }
    // This server serves TCP only: --tcp names a port, and the default port of RDMA is taken.
    let second = Started::of(serve(at, "second", &[&mount[..], &["--tcp", "127.0.0.1:0"]].concat()));
    assert_eq!(second.ready["rdma"], serde_json::json!([]));
    let port = second.ready["tcp"][0].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    assert_eq!(second.ready["mount"], format!("mount -t nfs -o port={port} 127.0.0.1:/ /mnt"));
    let log = second.end();
    assert!(log.contains(&format!("cannot listen on {RDMA} for NFS over RDMA")), "{log}");
    assert!(log.contains("goes on without it: name another with --listen"), "{log}");
    // Nothing is left to serve on.
    let output = serve(at, "third", &mount).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("no port for NFS can be had") && error.contains(RDMA) && error.contains(TCP), "{error}");
    // A port that an option names must be available; with version 3 alone the default ports as well.
    for more in [&["--listen", RDMA][..], &["--tcp", TCP, "--listen", "127.0.0.1:0"], &["--nfs", "3"]] {
        let output = serve(at, "third", &[&mount[..], more].concat()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{more:?}: {error}");
        assert!(error.contains("cannot listen on 127.0.0.1:2"), "{more:?}: {error}");
    }
    drop(first.map(Started::end));
}

#[test]
fn version_4_goes_on_without_mount_where_its_port_is_taken() {
    let scratch = tempfile::tempdir().unwrap();
    let here = ["--listen", "127.0.0.1:0"];
    // Either server took the ports, or a program that ran before them.
    let (first, second) =
        (Started::of(serve(scratch.path(), "a", &here)), Started::of(serve(scratch.path(), "b", &here)));
    assert_eq!(second.ready["mountd"], serde_json::json!([]));
    assert!(second.ready["tcp"] == serde_json::json!([]), "who names a listener of NFS gets no other");
    assert!(second.end().contains("cannot listen on 127.0.0.1:20048 for MOUNT"));
    drop(first.end());
}
