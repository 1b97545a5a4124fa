//! An attacker on the path claims that a server has no NFS version 4, so that a client would go down to version 3,
//! whose MOUNT uses AUTH_SYS.

use crate::{
    Reader, Wire,
    common::{fails, proxy, rpcrdma, run},
    house::{House, SECURED, with_users},
    opaque, words,
};
use rpcrdma_gss::realm::within;
use std::{io::ErrorKind, net::TcpListener, thread, time::Duration};

const TOLD: &str = "the client does not try version 3 on such an answer";

/// Starts a server that answers everything with PROG_MISMATCH, versions 3 to 3. Returns its address.
fn mismatching() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut wire = Wire(stream.unwrap());
            thread::spawn(move || {
                while let Some(call) = wire.reply(Duration::from_secs(20)) {
                    wire.send(&words(&[Reader(&call).word(), 1, 0, 0, 0, 2, 3, 3]));
                }
            });
        }
    });
    address
}

/// Changes the reply to an executed call into PROG_MISMATCH, and keeps its verifier, which covers only the call's
/// sequence number. Replies that make contexts stay unchanged.
fn mismatch(record: &mut Vec<u8>, count: usize) {
    let mut reply = Reader(&record[4..]);
    let [xid, _, denied, flavour] = [0; 4].map(|_| reply.word());
    let verifier = reply.opaque();
    if count == 0 || denied != 0 || flavour != 6 {
        return;
    }
    let forged = [words(&[xid, 1, 0, flavour]), opaque(&verifier), words(&[2, 3, 3])].concat();
    *record = [words(&[0x8000_0000 | forged.len() as u32]), forged].concat();
}

/// proves: OPS-SEC-m
#[test]
fn kerberos_does_not_go_down_to_version_3_on_somebodys_word() {
    within("downgrade::kerberos_does_not_go_down_to_version_3_on_somebodys_word", |realm| {
        with_users(realm);
        let mount = TcpListener::bind("127.0.0.1:0").unwrap();
        mount.set_nonblocking(true).unwrap();
        let port = mount.local_addr().unwrap().port();
        let house = House::new(realm, "127.0.0.104", "krb5,krb5i,krb5p", &[]);
        for sec in SECURED {
            let mut count = 0;
            let between = proxy::between(house.server.tcp.as_ref().unwrap(), move |record| {
                mismatch(record, count);
                count += 1;
            });
            for server in [mismatching(), between] {
                let url = |more: &str| {
                    format!("nfs://{server}/?transport=tcp&sec={sec}&principal=nfs/localhost&mountport={port}{more}")
                };
                let text = fails(1, ["ls", &url("")]);
                assert!(text.contains(TOLD) && text.contains("write version=3 in the URL"), "{sec}: {text}");
                assert_eq!(mount.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "{sec}: MOUNT was asked");
            }
            // A user who asks for version 3 gets it, and without Kerberos a client goes down to it.
            for more in [format!("sec={sec}&principal=nfs/localhost&version=3"), "sec=sys".into()] {
                let url = format!("nfs://{}/?transport=tcp&mountport={port}&{more}", mismatching());
                let mut command = rpcrdma().args(["ls", &url]).spawn().unwrap();
                while mount.accept().is_err() {
                    assert!(command.try_wait().unwrap().is_none(), "{more}: MOUNT was not asked");
                    thread::sleep(Duration::from_millis(5));
                }
                command.kill().unwrap();
                command.wait().unwrap();
            }
        }
        run(["ls", &house.url("transport=tcp&version=3", "krb5i", "")]);
    });
}
