//! Which credential, which program and which sizes the server uses to call a client: those of CREATE_SESSION and
//! BACKCHANNEL_CTL.

use super::*;
use rpcrdma_nfs::v4::{
    List,
    ops::{CallbackSecurity, GssHandles, GssService},
};
use rpcrdma_oncrpc::{AUTH_NONE, AUTH_SYS, SysCredential};
use rpcrdma_xdr::{Decode, Decoder, Stream};

fn sys(uid: u32) -> CallbackSecurity {
    let credential = SysCredential { stamp: 13, machine: "fake name".into(), uid, gid: uid + 2, groups: vec![5] };
    CallbackSecurity::Sys(Box::new(credential))
}

fn gss() -> CallbackSecurity {
    let handle = |name: &'static str| Opaque(bytes::Bytes::from_static(name.as_bytes()));
    let handles =
        GssHandles { service: GssService::Privacy, from_server: handle("server"), from_client: handle("client") };
    CallbackSecurity::Gss(Box::new(handles))
}

/// The user of a call; `None` without a credential.
fn caller(heard: &Heard) -> Option<SysCredential> {
    match heard.credential.flavour {
        AUTH_NONE => None,
        AUTH_SYS => {
            Some(SysCredential::decode(&mut Decoder::new(Stream::from(heard.credential.body.clone()))).unwrap())
        }
        other => panic!("flavour {other}"),
    }
}

/// proves: NFS4-8881-18.36-n, NFS4-8881-18.33-a, NFS4-8881-18.33-b
#[test]
fn a_client_is_called_as_it_has_said() {
    let (server, back) = (TestServer::memory(), Back::new());
    let ways = [(vec![sys(17)], Some(17)), (vec![CallbackSecurity::None, sys(17)], None)];
    for (ways, user) in ways {
        let rpc = server.connection_over(&back);
        let client = TestClient::with(rpc, &format!("{user:?}"), |create| {
            (create.callback_security, create.callback_program) = (List(ways.clone()), 0x4000_0004);
        });
        server.drive();
        call(&server, &client, vec![recall()]).unwrap();
        let heard = back.calls().remove(0);
        assert_eq!(
            (heard.program, caller(&heard).map(|sys| (sys.uid, sys.gid))),
            (0x4000_0004, user.map(|u| (u, u + 2)))
        );
        let control = |program, ways| {
            let control = ops::BackchannelCtl { program, security: List(ways) };
            client.status(vec![Args::BackchannelCtl(control)])
        };
        assert_eq!(control(0x4000_0004, vec![sys(29)]), Status::OK);
        assert!(can_call(&server, &client), "the program is the same, and answers");
        call(&server, &client, vec![recall()]).unwrap();
        let sys = caller(&back.calls()[0]).unwrap();
        assert_eq!((sys.stamp, &sys.machine[..], sys.uid, sys.groups), (13, &b"fake name"[..], 29, vec![5]));
        assert_eq!(control(0x4000_0004, vec![gss()]), Status::NOENT);
        assert_eq!(control(0x4000_0005, vec![]), Status::OK);
        assert!(!can_call(&server, &client), "nobody knows of another one");
        server.drive();
        assert!(can_call(&server, &client));
        call(&server, &client, vec![recall()]).unwrap();
        let heard = back.calls().remove(0);
        assert_eq!((heard.program, caller(&heard).unwrap().uid), (0x4000_0005, 29), "as before");
    }
}

/// The client still gets its session.
///
/// proves: NFS4-8881-18.36-n
#[test]
fn a_client_that_can_be_called_in_no_way_is_not_called() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = TestClient::with(server.connection_over(&back), "a", |create| {
        create.callback_security = List(vec![]);
    });
    server.drive();
    client.reclaim_complete();
    assert_eq!((can_call(&server, &client), told(&client)), (false, 0));
    assert_eq!(call(&server, &client, vec![recall()]), Err(NoAnswer::NoPath));
}

/// The length of the RPC message of a call with one CB_RECALL, whose handle has this many bytes.
fn octets(handle: usize) -> u32 {
    // RPC's head, tag, minor version, ident, count; CB_SEQUENCE; CB_RECALL.
    (40 + 16 + (4 + 16 + 16 + 4) + (4 + 16 + 4 + 4 + handle)) as u32
}

fn recall_of(octets: usize) -> callback::Args {
    callback::Args::Recall(CbRecall { state: StateId::CURRENT, truncate: false, file: handle(octets) })
}

/// proves: ULB-6.2-f, NFS4-8881-2.10.6.4-c
#[test]
fn nothing_larger_than_the_clients_back_channel_is_sent() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = TestClient::with(server.connection_over(&back), "a", |create| {
        (create.back.max_request, create.back.max_operations) = (octets(64), 3);
    });
    server.drive();
    call(&server, &client, vec![recall_of(64)]).unwrap();
    assert_eq!(back.calls()[0].octets, octets(64) as usize, "at the limit");
    assert_eq!(call(&server, &client, vec![recall_of(68)]), Err(NoAnswer::Refused(Status::REQ_TOO_BIG)));
    let small = || recall_of(4);
    assert!(back.calls().is_empty());
    assert!(can_call(&server, &client), "the client has not failed");

    let client = TestClient::with(server.connection_over(&back), "b", |create| create.back.max_operations = 3);
    server.drive();
    call(&server, &client, vec![small(), small()]).unwrap();
    assert_eq!(back.calls().len(), 1, "at the limit");
    let many = vec![small(), small(), small()];
    assert_eq!(call(&server, &client, many), Err(NoAnswer::Refused(Status::TOO_MANY_OPS)));
    assert!(back.calls().is_empty());
}

/// proves: ULB-6.2-b
#[test]
fn replies_are_not_let_be_larger_than_the_client_says() {
    let (server, back) = (TestServer::memory(), Back::new());
    for (response, most) in [(80, 80), (84, 84), (85, 84), (4_096, 24 + 12 + 40 + 8)] {
        let client = TestClient::with(server.connection_over(&back), "a", |create| create.back.max_response = response);
        server.drive();
        call(&server, &client, vec![recall()]).unwrap();
        // RPC's head may contain a verifier of 400 bytes.
        assert_eq!(back.calls()[0].max_reply, 400 + most as usize, "{response}");
    }
}

/// The transport carries less than the client's back channel accepts: in version 1 of RPC-over-RDMA, calls in this
/// direction are inline messages only.
///
/// proves: ULB-6.2-g
#[test]
fn what_the_transport_does_not_carry_is_refused_and_leaves_the_slot_as_it_was() {
    let (server, back) = (TestServer::memory(), Back::new());
    let client = server.client_with("a", &back);
    let misuse = rpcrdma_oncrpc::Misuse::CallTooLarge { len: 5_000, max: 4_068 };
    back.answer_by(move |_| Said::Failed(misuse.into()));
    assert_eq!(call(&server, &client, vec![recall_of(128)]), Err(NoAnswer::Refused(Status::REQ_TOO_BIG)));
    back.answer_by(|_| Said::Well);
    call(&server, &client, vec![recall()]).unwrap();
    assert_eq!(numbers(&back.calls()), [(0, 1), (0, 1)]);
    assert!(can_call(&server, &client));
}
