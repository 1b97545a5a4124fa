//! What a COMPOUND answers whatever its operations are about.

use super::*;
use rpcrdma_nfs::v4::ops::ListXattrs;

/// proves: NFS4-8881-17-a
#[test]
fn an_operation_that_is_not_there_says_so_however_much_it_asks_for() {
    let server = TestServer::memory();
    let client = server.client("a");
    for max_count in [0, 100, u32::MAX] {
        let list = Args::ListXattrs(ListXattrs { cookie: 0, max_count });
        assert_eq!(client.status(vec![Args::PutRootFh, list]), Status::NOTSUPP, "{max_count}");
    }
}
