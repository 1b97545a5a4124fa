//! Access control lists by NFSACL, beside version 3: the client's calls, the room for their replies, and what servers
//! may answer.

use rpcrdma_env::{BoxFuture, SeededRandom, TokioClock};
use rpcrdma_nfs::{
    attr::{Acls, PosixAcl},
    nfsacl, v3,
};
use rpcrdma_nfs_client::{Cause, Error, Files, Handle, Nfs3};
use rpcrdma_oncrpc::{
    CallHeader, CallInFlight, Cancelled, Client, ClientTransport, Limits, NoAuth, OpaqueAuth, PendingCall, Rejection,
    Reply, ReplyHeader, Request, TransportError, TransportKind, XidSource,
};
use rpcrdma_xdr::{Decoder, Encoder, Stream};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

/// A call that the server got: program, version and procedure, the arguments, the room for the reply, and whether the
/// transport may repeat it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    to: [u32; 3],
    args: Vec<u32>,
    room: usize,
    repeatable: bool,
}

/// A server that answers every call with the same words, or rejects it.
struct Server {
    xids: XidSource,
    answer: Result<Vec<u32>, Rejection>,
    asked: Mutex<Vec<Asked>>,
}

struct Answered(Option<Stream>);

impl Future for Answered {
    type Output = Result<Reply, TransportError>;
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = self.0.take().map(|stream| Reply { stream, retransmitted: false });
        Poll::Ready(reply.ok_or(TransportError::Closed))
    }
}

impl CallInFlight for Answered {
    fn cancel(self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled> {
        Box::pin(std::future::ready(Cancelled::default()))
    }
}

impl ClientTransport for Server {
    fn next_xid(&self) -> u32 {
        self.xids.next_xid()
    }

    fn call(&self, request: Request) -> PendingCall {
        assert_eq!(request.message.items().count() + request.reply.items.len(), 0, "nothing may be placed");
        let mut decoder = Decoder::new(Stream::from(request.message.to_bytes()));
        let id = CallHeader::decode(&mut decoder).unwrap().id;
        let args = (0..decoder.remaining() / 4).map(|_| decoder.u32().unwrap()).collect();
        let (room, repeatable) = (request.reply.max_len, request.repeatable);
        let to = [id.program, id.version, id.procedure];
        self.asked.lock().unwrap().push(Asked { to, args, room, repeatable });
        let mut encoder = Encoder::new();
        let status = self.answer.as_ref().map(|_| ()).map_err(Clone::clone);
        ReplyHeader { xid: id.xid, verifier: OpaqueAuth::none(), status }.encode(&mut encoder);
        self.answer.iter().flatten().for_each(|word| encoder.u32(*word));
        PendingCall::new(Answered(Some(Stream::from(encoder.finish().to_bytes()))))
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Rdma
    }

    fn limits(&self) -> Limits {
        Limits::new(2 << 20, 2 << 20)
    }

    fn server(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], 20049).into()
    }
}

fn serving(answer: Result<Vec<u32>, Rejection>) -> (Files, Arc<Server>) {
    let xids = XidSource::new(&SeededRandom::new(1));
    let server = Arc::new(Server { xids, answer, asked: Mutex::default() });
    let rpc = Client::new(server.clone(), Arc::new(NoAuth), v3::PROGRAM, v3::VERSION);
    (Nfs3::new(rpc, Arc::new(TokioClock::new())).into(), server)
}

fn file() -> Handle {
    v3::Handle::new(b"file").unwrap().into()
}

/// The file's handle in wire form.
const FILE: [u32; 2] = [4, 0x6669_6C65];

fn named() -> Acls {
    let access = PosixAcl::new([6, 4, 0], vec![(1000, 7)], vec![(50, 1)], Some(5)).unwrap();
    Acls { access, default: None }
}

/// Six entries of a list, after their counts.
const NAMED: [u32; 20] = [6, 6, 1, 0, 6, 2, 1000, 7, 4, 0, 4, 8, 50, 1, 16, 0, 5, 32, 0, 0];
/// The longest header of a reply, without the results.
const HEADER: usize = 24 + 400;

/// Over NFS's transport, to NFSACL's own program, and with room for the longest lists, whatever lists the file has.
///
/// proves: ULB-4.2-c, ULB-4.2-a
#[tokio::test]
async fn a_reply_has_room_for_the_longest_lists() {
    // The status, no attributes, the mask, the lists.
    let (files, server) = serving(Ok([&[0, 0, 5][..], &NAMED, &[0, 0]].concat()));
    assert_eq!(files.posix_acls(&file()).await.unwrap(), named());
    let list = 8 + 12 * nfsacl::MAX_ENTRIES;
    let room = HEADER + 4 + 88 + 4 + 2 * list;
    let (to, args) = ([100_227, 3, 1], [&FILE[..], &[5]].concat());
    assert_eq!(*server.asked.lock().unwrap(), [Asked { to, args, room, repeatable: true }]);

    // The program limits the size of SETACL's results.
    let (files, server) = serving(Ok(vec![0, 0]));
    files.set_posix_acls(&file(), &named()).await.unwrap();
    let (to, args) = ([100_227, 3, 2], [&FILE[..], &[5], &NAMED, &[0, 0]].concat());
    assert_eq!(*server.asked.lock().unwrap(), [Asked { to, args, room: HEADER + 4 + 88, repeatable: false }]);
}

#[tokio::test]
async fn a_default_list_goes_with_the_access_list() {
    let default = [3, 3, 0x1001, 9, 7, 0x1004, 9, 5, 0x1020, 0, 0];
    let (files, _) = serving(Ok([&[0, 0, 5][..], &NAMED, &default].concat()));
    let both = Acls { default: Some(PosixAcl::of_mode(0o750)), ..named() };
    assert_eq!(files.posix_acls(&file()).await.unwrap(), both);
    let (files, server) = serving(Ok(vec![0, 0]));
    files.set_posix_acls(&file(), &both).await.unwrap();
    let sent = [4, 4, 0x1001, 0, 7, 0x1004, 0, 5, 0x1010, 0, 5, 0x1020, 0, 0];
    assert_eq!(server.asked.lock().unwrap()[0].args, [&FILE[..], &[5], &NAMED, &sent].concat());
}

/// A server without the program answers the first call; later calls fail at once with the same error.
#[tokio::test]
async fn a_server_without_the_program_is_asked_once() {
    for missing in [Rejection::ProgramUnavailable, Rejection::ProgramMismatch { low: 2, high: 2 }] {
        let (files, server) = serving(Err(missing));
        let first = files.posix_acls(&file()).await.unwrap_err();
        assert!(matches!(first, Error::Call { procedure: "GETACL", .. }), "{first:?}");
        for error in [
            first,
            files.clone().posix_acls(&file()).await.map(|_| ()).unwrap_err(),
            files.set_posix_acls(&file(), &named()).await.unwrap_err(),
        ] {
            assert!(error.is_not_supported() && !error.is_unreachable() && error.status().is_none(), "{error:?}");
        }
        assert_eq!(server.asked.lock().unwrap().len(), 1);
    }
    // Any other error concerns only one call.
    for (answer, cause) in [(10_004, Cause::NotSupported), (1, Cause::NotOwner), (70, Cause::Stale)] {
        let (files, server) = serving(Ok(vec![answer, 0]));
        assert_eq!(files.posix_acls(&file()).await.unwrap_err().cause(), Some(cause));
        assert_eq!(files.set_posix_acls(&file(), &named()).await.unwrap_err().cause(), Some(cause));
        assert_eq!(server.asked.lock().unwrap().len(), 2);
    }
}

/// A server can send anything.
#[tokio::test]
async fn lists_that_are_none_are_nobodys() {
    let base = [4, 4, 1, 0, 6, 4, 0, 4, 16, 0, 4, 32, 0, 0];
    let swap = |at: usize, word: u32| {
        let mut list = base;
        list[at] = word;
        list
    };
    // A class twice; an invalid type; invalid rights.
    for list in [swap(5, 1), swap(2, 0x40), swap(4, 8), swap(2, 2)] {
        let (files, _) = serving(Ok([&[0, 0, 5][..], &list, &[0, 0]].concat()));
        let error = files.posix_acls(&file()).await.unwrap_err();
        assert!(matches!(error, Error::Nonsense { procedure: "GETACL", .. }), "{error:?}");
        let (files, _) = serving(Ok([&[0, 0, 5][..], &base, &list].concat()));
        assert!(files.posix_acls(&file()).await.is_err());
    }
    // Fewer lists than the client asked for.
    for mask in [0, 1, 4, 0xA] {
        let (files, _) = serving(Ok([&[0, 0, mask][..], &base, &[0, 0]].concat()));
        let error = files.posix_acls(&file()).await.unwrap_err();
        assert!(matches!(error, Error::Nonsense { .. } | Error::Call { .. }), "{mask}: {error:?}");
    }
    // Wrong counts.
    for list in [swap(0, 5), swap(0, 3), swap(1, 3), swap(1, 5), swap(1, u32::MAX), swap(0, 1025)] {
        let (files, _) = serving(Ok([&[0, 0, 5][..], &list, &[0, 0]].concat()));
        let error = files.posix_acls(&file()).await.unwrap_err();
        assert!(matches!(error, Error::Call { .. }), "{error:?}");
    }
}

/// The client does not send more entries than the program allows.
#[tokio::test]
async fn a_list_that_is_too_long_is_not_sent() {
    let of = |users: u32| PosixAcl::new([7; 3], (0..users).map(|id| (id, 4)).collect(), vec![], Some(7)).unwrap();
    let (files, server) = serving(Ok(vec![0, 0]));
    files.set_posix_acls(&file(), &Acls { access: of(1020), default: Some(of(1020)) }).await.unwrap();
    for (access, default) in [(of(1021), None), (of(1), Some(of(1021)))] {
        let error = files.set_posix_acls(&file(), &Acls { access, default }).await.unwrap_err();
        assert_eq!(error.cause(), Some(Cause::TooLarge));
    }
    assert_eq!(server.asked.lock().unwrap().len(), 1);
}
