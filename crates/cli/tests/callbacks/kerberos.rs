//! The server recalls delegations from a client that calls with Kerberos. The client accepts calls without a credential
//! (AUTH_NONE in the session's security parameters) over its own connection. If the KDC's programs are not installed,
//! nothing is tested.

use crate::{
    called::{BOTH, PATIENCE, READ, Session, WAYS, WRITE, transport, until_done},
    common::{Server, served},
};
use rpcrdma_gss::{
    Gss, Tickets,
    realm::{Realm, within},
};
use rpcrdma_nfs::v4::{
    PROGRAM, Status, VERSION, callback,
    ops::{OpenHow, share},
};
use rpcrdma_oncrpc::{
    Client,
    gss::{GssAuth, GssService, Work},
};
use std::{fs, os::unix::fs::PermissionsExt as _, pin::pin, sync::Arc};
use tokio::time::timeout;

/// Each job has a thread.
struct Threads;

impl Work for Threads {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        drop(std::thread::spawn(job));
    }
}

fn start(realm: &Realm) -> Server {
    let (host, keytab) = ("127.0.0.106", realm.keytab());
    let (any, tcp) = (format!("{host}:0"), format!("{host}:2049"));
    let own = ["--tcp", &tcp, "--sec", "krb5,krb5i,krb5p", "--keytab", keytab.to_str().unwrap()];
    Server::start_at(&served(realm.folder()), &realm.folder().join("state"), &any, &any, &own)
}

async fn recalls(realm: &Realm) {
    let (server, env) = (start(realm), rpcrdma_env::tokio_env().unwrap());
    for service in [GssService::Authentication, GssService::Integrity, GssService::Privacy] {
        let identity = || {
            let tickets = Tickets::of_user(Gss::load().unwrap(), "localhost");
            Arc::new(GssAuth::new(&env, Arc::new(tickets), Arc::new(Threads), service))
        };
        for way in WAYS {
            let what = format!("{service:?} {way:?}");
            let (carried, mut calls) = transport(&server, way, &env, |_| {}).await;
            let holder = Client::new(carried, identity(), PROGRAM, VERSION);
            let holder = Session::new(holder, &format!("holder {what}")).await;
            let (carried, _calls) = transport(&server, way, &env, |_| {}).await;
            let other =
                Session::new(Client::new(carried, identity(), PROGRAM, VERSION), &format!("other {what}")).await;
            for (access, wanted) in [(READ | share::WANT_READ, WRITE), (BOTH | share::WANT_WRITE, READ)] {
                let name = format!("{what} {wanted}");
                let file = realm.folder().join("served").join(&name);
                fs::write(&file, "contents").unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
                let (file, delegation) = holder.delegated(&name, access).await;
                let opening = async || other.open_with(&name, wanted | share::WANT_NONE, OpenHow::NoCreate).await;
                let mut opening = pin!(until_done(opening));
                let call = tokio::select! {
                    _ = &mut opening => panic!("{what}: it is still delegated"),
                    call = timeout(PATIENCE, calls.recv()) => call.expect("nobody calls").unwrap(),
                };
                let [callback::Args::Sequence(sequence), callback::Args::Recall(recall)] = &call.ops[..] else {
                    panic!("{what}: {call:?}");
                };
                assert_eq!((sequence.session, &recall.file, recall.state), (holder.session, &file, delegation));
                assert_eq!(holder.give_back(&file, delegation).await, Status::OK, "{what}");
                timeout(PATIENCE, opening).await.unwrap_or_else(|_| panic!("{what}: it is back"));
            }
        }
    }
}

/// proves: OPS-SEC-n
#[test]
fn what_is_delegated_by_kerberos_is_recalled_over_every_transport() {
    within("kerberos::what_is_delegated_by_kerberos_is_recalled_over_every_transport", |realm| {
        realm.kinit("alice", "10m").unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(recalls(realm));
    });
}
