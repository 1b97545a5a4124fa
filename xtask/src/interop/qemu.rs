//! The command line of QEMU for a guest.

use super::{
    context::Context,
    crash::{CONSOLE_LOG, RESETS_LOG},
    guest::GuestOptions,
    namespace,
};
use std::{path::Path, process::Command};

/// Memory of a guest, in MiB: the initramfs takes 40, the programs little, the page cache the rest. Random operations
/// on files with calls of 1 MiB leave 400 MiB free.
const MEMORY: u32 = 640;

/// Bytes of each packet in a capture: QEMU hands over up to 64 KiB at once, before a network interface would cut it
/// into packets.
const CAPTURED_LENGTH: u32 = 262_144;

/// QEMU for a guest whose folder is `dir`.
pub(super) fn command(context: &Context, options: &GuestOptions, dir: &Path) -> Command {
    let image = &context.image().folder;
    let (network, interface, mtu) = network(options);
    let mut command = namespace::command(options.namespace.as_deref(), "nice");
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
    // A processor that resets itself leaves no other trace.
    command.args(["-d", "cpu_reset", "-D"]).arg(dir.join(RESETS_LOG));
    command.arg("-kernel").arg(image.join("vmlinuz")).arg("-initrd").arg(image.join("initramfs.cpio"));
    command.arg("-append").arg(format!(
        "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic mitigations=off tsc=reliable no_timer_check random.trust_cpu=on link={}{mtu}",
        options.link
    ));
    command.args(["-netdev", &network, "-device", &interface, "-device", "virtio-rng-pci"]);
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

/// The network that QEMU reaches, the guest's interface, and the kernel parameters about it.
fn network(options: &GuestOptions) -> (String, String, String) {
    let interface = "virtio-net-pci,netdev=net0,romfile=";
    if let Some(tap) = &options.tap {
        // Without offloads the guest sends packets as they are on a wire, no longer than the MTU; with offloads, their
        // header would also stand in the capture.
        let network = format!("tap,id=net0,ifname={},script=no,downscript=no,vnet_hdr=off", tap.device);
        return (network, format!("{interface},mac={}", tap.mac), format!(" mtu={}", tap.mtu));
    }
    let mut network = "user,id=net0,ipv6=off".to_owned();
    for (host, guest) in &options.forwards {
        network.push_str(&format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}"));
    }
    (network, interface.to_owned(), String::new())
}
