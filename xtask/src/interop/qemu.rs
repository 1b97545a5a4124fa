//! The command that is a guest.

use super::{
    context::Context,
    crash::{CONSOLE_LOG, RESETS_LOG},
    guest::GuestOptions,
};
use std::{path::Path, process::Command};

/// Memory of a guest, in MiB: the initramfs takes 40, the programs little, the page cache the rest. Random operations on files by calls of
/// 1 MiB leave 450 of it free.
const MEMORY: u32 = 640;

/// Octets of each packet in a capture: QEMU hands over what the network interface would have cut (64 KiB).
const CAPTURED_LENGTH: u32 = 262_144;

/// QEMU for a guest whose folder is `dir`.
pub(super) fn command(context: &Context, options: &GuestOptions, dir: &Path) -> Command {
    let image = &context.image().folder;
    let mut network = "user,id=net0,ipv6=off".to_owned();
    for (host, guest) in &options.forwards {
        network.push_str(&format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}"));
    }
    let mut command = Command::new(if options.namespace.is_some() { "ip" } else { "nice" });
    if let Some(namespace) = &options.namespace {
        command.args(["netns", "exec", namespace, "nice"]);
    }
    command.args([
        "-n",
        "5",
        "qemu-system-x86_64",
        "-name",
        "rpcrdma-interop",
        "-machine",
        "pc,accel=tcg",
        "-cpu",
        "max,la57=off",
    ]);
    command.args(["-m", &MEMORY.to_string(), "-smp", "1", "-nodefaults", "-display", "none", "-no-reboot"]);
    command.arg("-serial").arg(format!("file:{}", dir.join(CONSOLE_LOG).display()));
    // A processor that resets itself says nothing else anywhere.
    command.args(["-d", "cpu_reset", "-D"]).arg(dir.join(RESETS_LOG));
    command.arg("-kernel").arg(image.join("vmlinuz")).arg("-initrd").arg(image.join("initramfs.cpio"));
    command.arg("-append").arg(format!(
        "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic mitigations=off tsc=reliable no_timer_check random.trust_cpu=on link={}",
        options.link
    ));
    command.args(["-netdev", &network, "-device", "virtio-net-pci,netdev=net0,romfile=", "-device", "virtio-rng-pci"]);
    command
        .arg("-virtfs")
        .arg(format!("local,path={},mount_tag=job,security_model=none,multidevs=remap", dir.display()));
    if options.capture {
        let file = dir.join("wire.pcap");
        command.arg("-object");
        command.arg(format!("filter-dump,id=dump,netdev=net0,file={},maxlen={CAPTURED_LENGTH}", file.display()));
    }
    command
}
