//! The devices of this machine, for programs that let their user choose one.

use crate::{
    config::Config,
    context::{Context, Devices},
    error::OpenError,
    limits::Limits,
    sys::verbs,
};
use rpcrdma_fabric::Capabilities;
use std::{ffi::CStr, fs, net::Ipv6Addr};

/// The most GIDs of a port that are listed. Tables have hundreds of entries, mostly empty.
const LISTED_GIDS: i32 = 256;

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Link {
    /// InfiniBand on its own cables.
    InfiniBand,
    /// InfiniBand's transport over Ethernet.
    RoCE,
    /// RDMA over TCP.
    Iwarp,
    /// Something else.
    Other,
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Link::InfiniBand => "InfiniBand",
            Link::RoCE => "RoCE",
            Link::Iwarp => "iWARP",
            Link::Other => "unknown",
        })
    }
}

/// A port of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Port {
    /// Its number, from 1.
    pub number: u8,
    /// Its protocol.
    pub link: Link,
    /// Whether it is in use.
    pub active: bool,
    /// Its state, in words.
    pub state: &'static str,
    /// Bytes in one packet.
    pub mtu: u32,
    /// Its network interface, if it has one.
    pub interface: Option<String>,
    /// Its addresses with their indices in the table. RoCE uses the network interface's addresses.
    pub gids: Vec<(u32, Ipv6Addr)>,
}

/// A device, its limits, and what this crate uses of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its name: `mlx5_0`.
    pub name: String,
    /// The version that its firmware reports.
    pub firmware: String,
    /// The vendor's number.
    pub vendor: u32,
    /// Queue pairs at most.
    pub max_queue_pairs: u32,
    /// Memory windows at most.
    pub max_windows: u32,
    /// Registrations at most.
    pub max_regions: u32,
    /// The capabilities of a [`Verbs`](crate::Verbs) with the default configuration.
    pub capabilities: Capabilities,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// All devices that the connection manager knows.
///
/// # Errors
/// If the libraries are missing, or there is no device.
pub fn devices() -> Result<Vec<DeviceInfo>, OpenError> {
    let contexts = Devices::open()?.all();
    if contexts.is_empty() {
        return Err(OpenError::NoDevice);
    }
    contexts.iter().map(describe).collect()
}

fn describe(context: &Context) -> Result<DeviceInfo, OpenError> {
    let name = context.name();
    let failed = |error| OpenError::Device { device: name.clone(), what: "asking for its attributes", error };
    let attributes = context.attributes().map_err(failed)?;
    let limits = Limits::of(context, &attributes, &Config::default());
    let firmware = attributes.fw_ver.map(|octet| octet as u8);
    let firmware = CStr::from_bytes_until_nul(&firmware).map(|text| text.to_string_lossy().into_owned());
    let count = |number: i32| u32::try_from(number).unwrap_or(0);
    Ok(DeviceInfo {
        firmware: firmware.unwrap_or_default(),
        vendor: attributes.vendor_id,
        max_queue_pairs: count(attributes.max_qp),
        max_windows: count(attributes.max_mw),
        max_regions: count(attributes.max_mr),
        capabilities: limits.capabilities,
        ports: ports(context, &attributes),
        name,
    })
}

/// The ports that answer a query.
pub(crate) fn ports(context: &Context, attributes: &verbs::DeviceAttributes) -> Vec<Port> {
    (1..=attributes.phys_port_cnt).filter_map(|number| port(context, number)).collect()
}

fn port(context: &Context, number: u8) -> Option<Port> {
    let attributes = context.port(number).ok()?;
    let link = match attributes.link_layer {
        _ if context.is_iwarp() => Link::Iwarp,
        verbs::LINK_ETHERNET => Link::RoCE,
        verbs::LINK_INFINIBAND => Link::InfiniBand,
        _ => Link::Other,
    };
    let indices = 0..attributes.gid_tbl_len.clamp(0, LISTED_GIDS);
    let gids = indices.filter_map(|index| {
        let gid = context.gid(number, index).ok().filter(|gid| *gid != [0; 16])?;
        Some((u32::try_from(index).ok()?, Ipv6Addr::from(gid)))
    });
    let gids: Vec<_> = gids.collect();
    let first = gids.first().map_or(0, |(index, _)| *index);
    let file = format!("/sys/class/infiniband/{}/ports/{number}/gid_attrs/ndevs/{first}", context.name());
    Some(Port {
        number,
        link,
        active: attributes.state == verbs::PORT_ACTIVE,
        state: state(attributes.state),
        mtu: octets(attributes.active_mtu),
        interface: fs::read_to_string(file).ok().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()),
        gids,
    })
}

/// `enum ibv_port_state`, in words.
fn state(state: i32) -> &'static str {
    match state {
        1 => "down",
        2 => "initializing",
        3 => "armed",
        4 => "active",
        5 => "active, but the link is gone",
        _ => "unknown",
    }
}

/// `enum ibv_mtu`, in bytes.
fn octets(mtu: i32) -> u32 {
    if (1..=5).contains(&mtu) { 128 << mtu } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_mtus_are_powers_of_two() {
        assert_eq!([0, 1, 3, 5, 6].map(octets), [0, 256, 1024, 4096, 0]);
    }
}
