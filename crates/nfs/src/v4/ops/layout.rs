//! Layouts of pNFS: GETDEVICEINFO, GETDEVICELIST, LAYOUTCOMMIT, LAYOUTGET, LAYOUTRETURN, LAYOUTERROR, LAYOUTSTATS (RFC
//! 8881 sections 18.40 to 18.44, RFC 7862 sections 15.6, 15.7). What a layout type defines for itself stays in octets.

use super::Refusal;
use crate::v4::{Bitmap, List, Opaque, StateId, Status, Time, Verifier};

/// Octets of a device's id (`NFS4_DEVICEID4_SIZE`).
pub const DEVICE_ID_BYTES: usize = 16;

/// The most octets of what a layout type defines for itself.
pub const MAX_LAYOUT_BYTES: usize = 64 << 10;

/// The most layouts, devices and errors of one operation.
pub const MAX_LAYOUTS: usize = 256;

xdr_fixed! {
    /// A device, as the server names it (`deviceid4`).
    pub struct DeviceId: DEVICE_ID_BYTES;
}

/// What a layout type defines for itself.
pub type LayoutBody = Opaque<MAX_LAYOUT_BYTES>;

xdr_union! {
    /// The layouts that LAYOUTRETURN returns (`layoutreturn4`).
    pub enum LayoutReturned: "kind of layouts" {
        /// The layouts of a range of the current file.
        File(file: LayoutReturnFile) = 1,
        /// All of the current file's file system.
        FileSystem = 2,
        /// All.
        All = 3,
    }
}

xdr_struct! {
    /// A range of a file whose layouts come back (`layoutreturn_file4`).
    pub struct LayoutReturnFile {
        /// Where it begins.
        pub offset: u64,
        /// Its length.
        pub length: u64,
        /// The layout.
        pub state: StateId,
        /// What the layout type adds.
        pub body: LayoutBody,
    }

    /// What a layout type adds to LAYOUTCOMMIT and LAYOUTSTATS (`layoutupdate4`).
    pub struct LayoutUpdate {
        /// The layout type.
        pub layout_type: u32,
        /// What it adds.
        pub body: LayoutBody,
    }

    /// A layout (`layout4`).
    pub struct Layout {
        /// Where its range begins.
        pub offset: u64,
        /// Its length.
        pub length: u64,
        /// 1: for reading; 2: for reading and writing; 3: any.
        pub io_mode: u32,
        /// The layout type.
        pub layout_type: u32,
        /// Where the data is.
        pub body: LayoutBody,
    }

    /// GETDEVICEINFO: asks where a device is.
    #[derive(Copy)]
    pub struct GetDeviceInfo {
        /// The device.
        pub device: DeviceId,
        /// The layout type.
        pub layout_type: u32,
        /// The most octets of the answer.
        pub max_count: u32,
        /// The changes of which the server should notify.
        pub notifications: Bitmap,
    }

    /// What GETDEVICEINFO returns.
    pub struct GetDeviceInfoOk {
        /// The layout type.
        pub layout_type: u32,
        /// Where the device is.
        pub address: LayoutBody,
        /// The changes that the server will report.
        pub notifications: Bitmap,
    }

    /// GETDEVICELIST: asks for devices of the current file's file system. Minor version 1 alone.
    #[derive(Copy)]
    pub struct GetDeviceList {
        /// The layout type.
        pub layout_type: u32,
        /// The most devices.
        pub max_devices: u32,
        /// Where to go on.
        pub cookie: u64,
        /// The verifier that came with that cookie.
        pub verifier: Verifier,
    }

    /// What GETDEVICELIST returns.
    pub struct GetDeviceListOk {
        /// Where to go on.
        pub cookie: u64,
        /// The verifier of the cookie.
        pub verifier: Verifier,
        /// The devices.
        pub devices: List<DeviceId, MAX_LAYOUTS>,
        /// Whether these were the last.
        pub end: bool,
    }

    /// LAYOUTCOMMIT: makes what was written through a layout of the current file visible to others.
    pub struct LayoutCommit {
        /// Where the range begins.
        pub offset: u64,
        /// Its length.
        pub length: u64,
        /// Whether it was held before the server restarted.
        pub reclaim: bool,
        /// The layout.
        pub state: StateId,
        /// The last octet written.
        pub last_write: Option<u64>,
        /// When it was written.
        pub modified: Option<Time>,
        /// What the layout type adds.
        pub update: LayoutUpdate,
    }

    /// What LAYOUTCOMMIT returns.
    #[derive(Copy)]
    pub struct LayoutCommitOk {
        /// The file's size, if it has changed.
        pub size: Option<u64>,
    }

    /// LAYOUTGET: asks for layouts of the current file.
    #[derive(Copy)]
    pub struct LayoutGet {
        /// Whether the server should signal when one is available.
        pub signal_when_available: bool,
        /// The layout type.
        pub layout_type: u32,
        /// As in [`Layout`].
        pub io_mode: u32,
        /// Where the range begins.
        pub offset: u64,
        /// Its length.
        pub length: u64,
        /// The least length that is useful.
        pub min_length: u64,
        /// The open, lock, delegation or layout that permits it.
        pub state: StateId,
        /// The most octets of the answer.
        pub max_count: u32,
    }

    /// What LAYOUTGET returns.
    pub struct LayoutGetOk {
        /// Whether the layouts end with the last CLOSE.
        pub return_on_close: bool,
        /// Names the layouts.
        pub state: StateId,
        /// The layouts.
        pub layouts: List<Layout, MAX_LAYOUTS>,
    }

    /// LAYOUTRETURN: gives layouts back.
    pub struct LayoutReturn {
        /// Whether they were held before the server restarted.
        pub reclaim: bool,
        /// The layout type.
        pub layout_type: u32,
        /// As in [`Layout`].
        pub io_mode: u32,
        /// The layouts to give back.
        pub returned: LayoutReturned,
    }

    /// What LAYOUTRETURN returns.
    #[derive(Copy)]
    pub struct LayoutReturnOk {
        /// Names the layouts that are left, if any.
        pub state: Option<StateId>,
    }

    /// LAYOUTERROR: a device has failed.
    pub struct LayoutError {
        /// Where the range begins.
        pub offset: u64,
        /// Its length.
        pub length: u64,
        /// The layout.
        pub state: StateId,
        /// The devices that have failed.
        pub errors: List<DeviceError, MAX_LAYOUTS>,
    }

    /// A device that has failed (`device_error4`).
    #[derive(Copy)]
    pub struct DeviceError {
        /// The device.
        pub device: DeviceId,
        /// The status that it returned.
        pub status: Status,
        /// The number of the operation that failed.
        pub operation: u32,
    }

    /// How much was read or written (`io_info4`).
    #[derive(Copy)]
    pub struct IoInfo {
        /// Calls.
        pub count: u64,
        /// Octets.
        pub octets: u64,
    }

    /// LAYOUTSTATS: how much a device has done.
    pub struct LayoutStats {
        /// Where the range begins.
        pub offset: u64,
        /// Its length.
        pub length: u64,
        /// The layout.
        pub state: StateId,
        /// What was read.
        pub read: IoInfo,
        /// What was written.
        pub write: IoInfo,
        /// The device.
        pub device: DeviceId,
        /// What the layout type adds.
        pub update: LayoutUpdate,
    }
}

/// GETDEVICEINFO has failed; with `TOOSMALL` the server says how many octets it needs.
pub type GetDeviceInfoFailure = Refusal<u32, { Status::TOOSMALL.0 }>;

/// LAYOUTGET has failed; with `LAYOUTTRYLATER` the server says whether it will signal when one is available.
pub type LayoutGetFailure = Refusal<bool, { Status::LAYOUTTRYLATER.0 }>;
