//! Replies to COMPOUNDs that do not depend on the operations.

use super::*;
use rpcrdma_nfs::v4::{
    Bitmap,
    ops::{DeviceId, GetDeviceInfo},
};

/// proves: NFS4-8881-17-a
#[test]
fn an_operation_that_is_not_there_says_so_however_much_it_asks_for() {
    let server = TestServer::memory();
    let client = server.client("a");
    for max_count in [0, 100, u32::MAX] {
        let (device, notifications) = (DeviceId([0; 16]), Bitmap::EMPTY);
        let get = Args::GetDeviceInfo(GetDeviceInfo { device, layout_type: 1, max_count, notifications });
        assert_eq!(client.status(vec![Args::PutRootFh, get]), Status::NOTSUPP, "{max_count}");
    }
}
