//! The provider suite, over every RDMA device of this machine that is in use: the harness runs this in a guest with
//! soft-RoCE and with soft-iWARP. Without a device, the error must help the user.
//!
//! RPCRDMA_VERBS_ADDRESS names an address of the device; without it the address is taken from the device's GIDs.

use bytes::Bytes;
use rpcrdma_env::{BusyPoll, tokio_env};
use rpcrdma_fabric::{
    ConnectError, ConnectionParams, Fabric, Receives, SharedReceives,
    suite::{Setup, Verdict, cases},
};
use rpcrdma_verbs::{Config, Device, DeviceInfo, OpenError, Verbs, devices};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

#[path = "suite/statuses.rs"]
mod statuses;

/// Linux's soft-RoCE. It checks the bounds of the region behind a window, not those of the window.
const SOFT_ROCE: u32 = 0x00FF_FFFF;
const NEED_BOUNDS: [&str; 4] = [
    "a_write_one_past_the_end_ends_the_connection",
    "a_write_one_before_the_beginning_ends_the_connection",
    "a_read_one_past_the_end_ends_the_connection",
    "a_read_one_before_the_beginning_ends_the_connection",
];

/// Linux's soft-iWARP. When it accepts, it raises the number of RDMA Reads that it serves to what the peer wishes.
const SOFT_IWARP: u32 = 0x0062_6D74;
const NEED_DEPTH: [&str; 1] = ["ird_and_ord_are_the_lower_of_both_wishes"];
/// Soft-iWARP lets a peer read whatever it may write.
const NEED_RIGHT_TO_READ: [&str; 1] = ["a_read_of_what_may_be_written_ends_the_connection"];

/// Why a device cannot pass a case.
fn left_out(device: &DeviceInfo, case: &str) -> Option<&'static str> {
    match device.vendor {
        SOFT_ROCE if NEED_BOUNDS.contains(&case) => Some("the device does not keep bounds"),
        SOFT_IWARP if NEED_DEPTH.contains(&case) => Some("the device serves more RDMA Reads than it was told"),
        SOFT_IWARP if NEED_RIGHT_TO_READ.contains(&case) => Some("the device does not ask for the right to read"),
        _ => None,
    }
}

/// The devices, and an address on each.
fn in_use() -> Vec<(DeviceInfo, IpAddr)> {
    let devices = match devices() {
        Ok(devices) => devices,
        Err(error) => {
            let text = error.to_string();
            let help = match &error {
                OpenError::Load(_) => "no RDMA libraries",
                OpenError::NoDevice => "rdma link",
                OpenError::NoConnectionManager(_) => "modprobe rdma_ucm",
                _ => panic!("{error:?}"),
            };
            assert!(text.contains(help), "{text}");
            println!("{text}");
            return Vec::new();
        }
    };
    let told = std::env::var("RPCRDMA_VERBS_ADDRESS").ok().map(|address| address.parse().unwrap());
    let address = |device: &DeviceInfo| {
        let gids = device.ports.iter().filter(|port| port.active).flat_map(|port| &port.gids);
        let mapped = gids.filter_map(|(_, gid)| gid.to_ipv4_mapped()).find(|address| *address != Ipv4Addr::UNSPECIFIED);
        told.or(mapped.map(IpAddr::V4))
    };
    devices.into_iter().filter_map(|device| address(&device).map(|address| (device, address))).collect()
}

async fn run_all(device: &DeviceInfo, address: IpAddr, set: impl FnOnce(&mut Config)) {
    run(device, address, set, |_| true).await;
}

/// Runs the cases whose names are wanted. Returns how many passed.
async fn run(
    device: &DeviceInfo,
    address: IpAddr,
    set: impl FnOnce(&mut Config),
    wanted: impl Fn(&str) -> bool,
) -> usize {
    let env = tokio_env().unwrap();
    let mut config = Config::default();
    config.device = Device::Local(address);
    // Cases hand handles from one end to the other by themselves, without a Send.
    config.await_binds = true;
    set(&mut config);
    let fabric = Arc::new(Verbs::open(env.clone(), config).await.unwrap());
    assert_eq!(fabric.device(), device.name);
    println!("{}: {:?}", device.name, fabric.capabilities());
    let only = std::env::var("RPCRDMA_VERBS_CASE").ok();
    let mut passed = 0;
    for case in cases() {
        if only.as_ref().is_some_and(|only| only != case.name()) || !wanted(case.name()) {
            continue;
        }
        if let Some(why) = left_out(device, case.name()) {
            println!("{}: left out, {why}", case.name());
            continue;
        }
        let setup =
            Setup { a: fabric.clone(), b: fabric.clone(), listen: SocketAddr::new(address, 0), env: env.clone() };
        println!("{} ...", case.name());
        let verdict = case.run_without_reasons(setup).await;
        match verdict {
            Verdict::Passed => {
                println!("{}: passed", case.name());
                passed += 1;
            }
            Verdict::Skipped(why) => println!("{}: {why}", case.name()),
        }
    }
    passed
}

#[tokio::test]
async fn every_device_keeps_the_contract() {
    for (device, address) in in_use() {
        run_all(&device, address, |_| {}).await;
    }
}

#[tokio::test]
async fn with_busy_polling_and_a_pool_of_one_slab() {
    for (device, address) in in_use() {
        run_all(&device, address, |config| {
            config.busy_poll = BusyPoll::For(Duration::from_micros(200));
            config.pool_bytes = 1;
        })
        .await;
    }
}

#[tokio::test]
async fn with_short_queues() {
    for (device, address) in in_use() {
        run_all(&device, address, |config| {
            config.send_queue = 4;
            config.max_receives = 64;
            config.max_exposures = 16;
            (config.max_ird, config.max_ord) = (1, 1);
        })
        .await;
    }
}

/// There are pools of receives with the option only, and only on devices with memory windows.
#[tokio::test]
async fn with_pools_of_receives() {
    for (device, address) in in_use() {
        assert!(!device.capabilities.shared_receives, "nobody has asked for pools");
        // More receives than the cases post, and fewer: receives that do not fit the pool wait in memory.
        for length in [64, 3] {
            let passed = run(&device, address, |config| config.shared_receives = length, |name| name.contains("share"));
            let windows = device.capabilities.remote_invalidation;
            assert_eq!(passed.await, if windows { 2 } else { 0 }, "a pool of {length}");
        }
    }
}

#[tokio::test]
async fn a_pool_that_is_not_the_devices_is_refused() {
    for (device, address) in in_use() {
        let mut config = Config::default();
        config.device = Device::Local(address);
        config.shared_receives = 4;
        let verbs = Verbs::open(tokio_env().unwrap(), config).await.unwrap();
        let listener = verbs.listen(SocketAddr::new(address, 0)).await.unwrap();
        let receives = Receives::Shared(SharedReceives::new());
        let params = ConnectionParams { private_data: Bytes::new(), ird: 1, ord: 1, receives };
        let error = match verbs.connect(listener.local_addr(), params).await {
            Ok(_) => panic!("{} has taken it", device.name),
            Err(error) => error,
        };
        let windows = device.capabilities.remote_invalidation;
        assert_eq!(matches!(error, ConnectError::Io { .. }), windows, "{error:?}");
        assert_eq!(matches!(error, ConnectError::Misuse(_)), !windows, "{error:?}");
    }
}

#[tokio::test]
async fn a_wrong_choice_is_told() {
    let env = tokio_env().unwrap();
    let Some((device, address)) = in_use().into_iter().next() else { return };
    let open = async |choice| {
        let mut config = Config::default();
        config.device = choice;
        match Verbs::open(env.clone(), config).await {
            Ok(verbs) => panic!("{} was opened", verbs.device()),
            Err(error) => error,
        }
    };
    let error = open(Device::Named("mlx9_9".to_owned())).await;
    assert!(matches!(&error, OpenError::UnknownDevice { known, .. } if known.contains(&device.name)), "{error}");
    let elsewhere = IpAddr::from([192, 0, 2, 1]);
    let error = open(Device::Local(elsewhere)).await;
    assert!(matches!(error, OpenError::NotOnDevice { address, .. } if address == elsewhere), "{error}");
    let mut config = Config::default();
    config.device = Device::Named(device.name.clone());
    let verbs = Verbs::open(env.clone(), config).await.unwrap();
    assert_eq!(verbs.device(), device.name);
    assert!(verbs.listen(SocketAddr::new(elsewhere, 0)).await.is_err());
    assert_eq!(verbs.listen(SocketAddr::new(address, 0)).await.unwrap().local_addr().ip(), address);
}
