//! Which programs a server answers on which port. Over RDMA it serves only programs that have a binding.

use rpcrdma_env::{Heap, tokio_env};
use rpcrdma_nfs::{mount, v3};
use rpcrdma_nfsd::{Export, MemoryFs, Nfsd, SECRET_BYTES};
use rpcrdma_oncrpc::{
    CallContext, Connection, GoneSignal, Handler, Limits, Outcome, Rejection, ReplyHeader, TransportKind,
};
use rpcrdma_xdr::{Decoder, Encoder, Stream};
use std::{net::SocketAddr, sync::Arc};

fn nfsd() -> Nfsd {
    let env = tokio_env().unwrap();
    let storage = Arc::new(MemoryFs::new(1 << 20, &env));
    Nfsd::new(vec![Export::new("/", storage)], [7; SECRET_BYTES], &env).unwrap()
}

/// The result of a program's procedure 0.
async fn null(handler: Arc<dyn Handler>, program: u32, version: u32) -> Result<(), Rejection> {
    let (_signal, gone) = GoneSignal::new();
    let here = SocketAddr::from(([127, 0, 0, 1], 20049));
    let limits = Limits::new(1 << 20, 1 << 20);
    let connection = Connection::new(here, here, 0, TransportKind::Rdma, limits, Arc::new(Heap), gone);
    let mut call = Encoder::new();
    for word in [1, 0, 2, program, version, 0, 0, 0, 0, 0] {
        call.u32(word);
    }
    let stream = Stream::from(call.finish().to_bytes());
    let Outcome::Reply(reply) = handler.handle(CallContext::new(Arc::new(connection)), stream).await else {
        panic!("procedure 0 is answered")
    };
    ReplyHeader::decode(&mut Decoder::new(Stream::from(reply.to_bytes()))).unwrap().status
}

/// Auxiliary programs of NFS without a binding, with their versions: MOUNT, the lock manager and the status monitor.
const AUXILIARY: [(u32, &[u32]); 3] = [(100_005, &[1, 2, 3]), (100_021, &[1, 3, 4]), (100_024, &[1])];
/// NFSACL.
const LISTS: u32 = 100_227;

/// proves: ULB-4-a, ULB-4.1-b, ULB-4.2-a, ULB-7-a
#[tokio::test]
async fn no_program_without_a_binding_is_served_beside_nfs() {
    let nfsd = nfsd();
    assert_eq!(null(nfsd.nfs(), v3::PROGRAM, v3::VERSION).await, Ok(()));
    for (program, versions) in AUXILIARY {
        for &version in versions {
            let answer = null(nfsd.nfs(), program, version).await;
            assert_eq!(answer, Err(Rejection::ProgramUnavailable), "{program} version {version}");
        }
    }
    // A program with a binding is served on the connections of NFS.
    assert_eq!(null(nfsd.nfs(), LISTS, 3).await, Ok(()));
    assert_eq!(null(nfsd.nfs(), LISTS, 2).await, Err(Rejection::ProgramMismatch { low: 3, high: 3 }));
    for version in [0, 1, 2, 4] {
        let answer = null(nfsd.nfs(), v3::PROGRAM, version).await;
        assert_eq!(
            answer,
            Err(Rejection::ProgramMismatch { low: 3, high: 3 }),
            "NFS version {version} has no binding here"
        );
    }
    // MOUNT has its own port, which clients reach only over TCP.
    assert_eq!((mount::PROGRAM, mount::VERSION_3), (100_005, 3));
    assert_eq!(null(nfsd.mount(), mount::PROGRAM, mount::VERSION_3).await, Ok(()));
    assert_eq!(null(nfsd.mount(), v3::PROGRAM, v3::VERSION).await, Err(Rejection::ProgramUnavailable));
}
