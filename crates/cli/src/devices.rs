//! `rpcrdma devices`: the RDMA devices of this machine.

use anyhow::Result;
use clap::Args;
use rpcrdma_fabric::{Capabilities, Fencing};
use rpcrdma_verbs::{DeviceInfo, Port};
use serde_json::{Value, json};
use std::{io::Write, net::Ipv6Addr};

#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print JSON, one object on each line
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &DevicesArgs, out: &mut dyn Write) -> Result<()> {
    for device in rpcrdma_verbs::devices()? {
        if args.json {
            writeln!(out, "{}", as_json(&device))?;
        } else {
            out.write_all(as_text(&device).as_bytes())?;
        }
    }
    Ok(())
}

/// An address as the rest of the system writes it.
fn address(gid: Ipv6Addr) -> String {
    gid.to_ipv4_mapped().map_or_else(|| gid.to_string(), |address| address.to_string())
}

/// How memory is lent, in words.
fn lending(capabilities: &Capabilities) -> &'static str {
    match capabilities.fencing {
        Fencing::Invalidation => "memory windows of type 2, which either side invalidates",
        Fencing::Deregistration => "registrations, ended by deregistering: each call that moves data costs one",
    }
}

fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn as_text(device: &DeviceInfo) -> String {
    let can = &device.capabilities;
    let mut text = format!("{} (vendor {:#x}, firmware {})\n", device.name, device.vendor, device.firmware);
    for port in &device.ports {
        text += &port_text(port);
    }
    let lines = [
        ("memory is lent by", lending(can).to_owned()),
        (
            "Send with Invalidate",
            format!("sent: {}, taken: {}", yes(can.send_with_invalidate), yes(can.remote_invalidation)),
        ),
        ("RDMA Reads at a time", format!("{} of a peer's, {} of our own", can.max_ird, can.max_ord)),
        ("for each connection", format!("{} receives, {} exposures", can.max_receives, can.max_exposures)),
        ("slices in a message", can.max_gather.to_string()),
        ("private data", format!("{} bytes", can.max_private_data)),
        (
            "the device has",
            format!(
                "{} queue pairs, {} registrations, {} memory windows",
                device.max_queue_pairs, device.max_regions, device.max_windows
            ),
        ),
    ];
    for (what, value) in lines {
        text += &format!("  {what:<21} {value}\n");
    }
    text
}

fn port_text(port: &Port) -> String {
    let interface = port.interface.as_deref().unwrap_or("no network interface");
    let mut text = format!("  port {}: {}, {}, on {interface}, MTU {}\n", port.number, port.link, port.state, port.mtu);
    for (index, gid) in &port.gids {
        text += &format!("    GID {index}: {}\n", address(*gid));
    }
    text
}

fn as_json(device: &DeviceInfo) -> Value {
    let can = &device.capabilities;
    let port = |port: &Port| {
        let gids: Vec<_> =
            port.gids.iter().map(|(index, gid)| json!({ "index": index, "address": address(*gid) })).collect();
        json!({
            "number": port.number, "link": port.link.to_string(), "state": port.state, "active": port.active,
            "interface": port.interface, "mtu": port.mtu, "gids": gids,
        })
    };
    json!({
        "name": device.name,
        "vendor": device.vendor,
        "firmware": device.firmware,
        "ports": device.ports.iter().map(port).collect::<Vec<_>>(),
        "memory_windows": can.fencing == Fencing::Invalidation,
        "send_with_invalidate": can.send_with_invalidate,
        "remote_invalidation": can.remote_invalidation,
        "max_ird": can.max_ird,
        "max_ord": can.max_ord,
        "max_receives": can.max_receives,
        "max_exposures": can.max_exposures,
        "max_gather": can.max_gather,
        "max_private_data": can.max_private_data,
        "max_queue_pairs": device.max_queue_pairs,
        "max_regions": device.max_regions,
        "max_windows": device.max_windows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_of_ethernet_are_written_as_addresses() {
        assert_eq!(address("::ffff:192.0.2.7".parse().unwrap()), "192.0.2.7");
        assert_eq!(address("fe80::1".parse().unwrap()), "fe80::1");
    }
}
