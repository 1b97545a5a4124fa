//! RDMA devices with `--fabric verbs` on a machine without devices: the message must help, and nothing else may happen.
//! The interop harness tests devices in its guests.

use std::process::{Command, Output};

fn rpcrdma(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rpcrdma")).args(args).output().unwrap()
}

/// The command's message when it fails.
fn complaint(args: &[&str]) -> String {
    let output = rpcrdma(args);
    assert!(!output.status.success(), "{args:?} has succeeded");
    assert!(output.stdout.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

fn has_devices() -> bool {
    std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

#[test]
fn without_a_device_each_command_says_what_to_do() {
    if has_devices() {
        let output = rpcrdma(&["devices", "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let (served, state) = (scratch.path().join("served"), scratch.path().join("state"));
    std::fs::create_dir(&served).unwrap();
    let (served, state) = (served.to_str().unwrap(), state.to_str().unwrap());
    let serve = ["serve", served, "--state", state, "--fabric", "verbs", "--mountd", "127.0.0.1:0"];
    let fabrics = [&["devices"][..], &serve, &["ping", "-c", "1", "nfs://127.0.0.1/?fabric=verbs"]];
    for args in fabrics {
        let said = complaint(args);
        let helps = ["rdma link", "install rdma-core", "modprobe rdma_ucm"].iter().any(|help| said.contains(help));
        assert!(helps, "{args:?}: {said}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let (directory, state) = (scratch.path().join("served"), scratch.path().join("state"));
    std::fs::create_dir(&directory).unwrap();
    let serve = ["serve", directory.to_str().unwrap(), "--state", state.to_str().unwrap(), "--mountd", "127.0.0.1:0"];
    let with = |more: &[&str]| complaint(&[&serve[..], more].concat());
    assert!(with(&["--device", "mlx5_0"]).contains("--fabric verbs"));
    assert!(with(&["--fabric", "verbs", "--no-crc"]).contains("--no-crc"));
    let capture = scratch.path().join("x.pcapng");
    assert!(with(&["--fabric", "verbs", "--capture", capture.to_str().unwrap()]).contains("software iWARP"));
    assert!(complaint(&["ls", "nfs://127.0.0.1/?fabric=tcp"]).contains("iwarp or verbs"));
    assert!(complaint(&["ls", "nfs://127.0.0.1/?device=mlx5_0"]).contains("say fabric=verbs"));
}
