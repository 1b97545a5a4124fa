//! Another project's NFS client reads and writes files of our server over TCP: the same service as over RDMA.

mod common;

use common::{Server, contents};
use nfs3_client::{
    Nfs3ConnectionBuilder,
    nfs3_types::{
        nfs3::{
            self, COMMIT3args, CREATE3args, GETATTR3args, LOOKUP3args, MKDIR3args, READ3args, READDIR3args,
            REMOVE3args, RENAME3args, WRITE3args, createhow3, diropargs3, filename3, nfs_fh3, stable_how,
        },
        rpc::{auth_unix, opaque_auth},
        xdr_codec::Opaque,
    },
    tokio::TokioConnector,
};
use std::fs;

fn name(directory: &nfs_fh3, name: &'static str) -> diropargs3<'static> {
    diropargs3 { dir: directory.clone(), name: filename3(Opaque::borrowed(name.as_bytes())) }
}

/// proves: ULB-4.1-a
#[tokio::test]
async fn another_client_reads_and_writes() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    fs::write(served.join("ours"), contents(300_000)).unwrap();
    let more = ["--no-root-squash", "--tcp", "127.0.0.1:0"];
    let server = Server::start(&served, &scratch.path().join("state"), &more);
    let port = |address: &str| address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
    let user = rustix::process::geteuid().as_raw();
    let identity = auth_unix {
        stamp: 7,
        machinename: Opaque::borrowed(b"elsewhere"),
        uid: user,
        gid: rustix::process::getegid().as_raw(),
        gids: vec![],
    };
    let mut client = Nfs3ConnectionBuilder::new(TokioConnector, "127.0.0.1", "/")
        .mount_port(port(&server.mount))
        .nfs3_port(port(server.tcp.as_ref().unwrap()))
        .connect_from_privileged_port(false)
        .credential(opaque_auth::auth_unix(&identity))
        .mount()
        .await
        .unwrap();
    let root = client.root_nfs_fh3();

    let found = client.lookup(&LOOKUP3args { what: name(&root, "ours") }).await.unwrap().unwrap();
    let mut octets = Vec::new();
    loop {
        let args = READ3args { file: found.object.clone(), offset: octets.len() as u64, count: 65_536 };
        let read = client.read(&args).await.unwrap().unwrap();
        octets.extend_from_slice(&read.data);
        if read.eof {
            break;
        }
    }
    assert_eq!(octets, contents(300_000));

    let attributes = nfs3::sattr3::default();
    let args = MKDIR3args { where_: name(&root, "directory"), attributes };
    client.mkdir(&args).await.unwrap().unwrap();
    let directory = client.lookup(&LOOKUP3args { what: name(&root, "directory") }).await.unwrap().unwrap().object;
    let args =
        CREATE3args { where_: name(&directory, "theirs"), how: createhow3::EXCLUSIVE(nfs3::createverf3([9; 8])) };
    client.create(&args).await.unwrap().unwrap();
    client.create(&args).await.unwrap().expect("the same verifier again is a retransmission");
    let args =
        CREATE3args { where_: name(&directory, "theirs"), how: createhow3::EXCLUSIVE(nfs3::createverf3([8; 8])) };
    assert!(matches!(client.create(&args).await.unwrap(), nfs3::Nfs3Result::Err((nfs3::nfsstat3::NFS3ERR_EXIST, _))));
    let file = client.lookup(&LOOKUP3args { what: name(&directory, "theirs") }).await.unwrap().unwrap().object;
    let data = contents(200_001);
    for (number, chunk) in data.chunks(50_000).enumerate() {
        let args = WRITE3args {
            file: file.clone(),
            offset: number as u64 * 50_000,
            count: chunk.len() as u32,
            stable: stable_how::UNSTABLE,
            data: Opaque::borrowed(chunk),
        };
        let written = client.write(&args).await.unwrap().unwrap();
        assert_eq!(written.count as usize, chunk.len());
    }
    client.commit(&COMMIT3args { file: file.clone(), offset: 0, count: 0 }).await.unwrap().unwrap();
    assert_eq!(fs::read(served.join("directory/theirs")).unwrap(), data);
    let size = client.getattr(&GETATTR3args { object: file }).await.unwrap().unwrap().obj_attributes.size;
    assert_eq!(size, 200_001);

    let args = RENAME3args { from: name(&directory, "theirs"), to: name(&root, "renamed") };
    client.rename(&args).await.unwrap().unwrap();
    let args = READDIR3args { dir: root.clone(), cookie: 0, cookieverf: Default::default(), count: 8192 };
    let listed = client.readdir(&args).await.unwrap().unwrap();
    let mut names: Vec<_> = listed.reply.entries.0.iter().map(|entry| entry.name.0.to_vec()).collect();
    names.retain(|name| !name.starts_with(b"."));
    names.sort();
    assert_eq!(names, [&b"directory"[..], b"ours", b"renamed"]);
    client.remove(&REMOVE3args { object: name(&root, "renamed") }).await.unwrap().unwrap();
    assert!(!served.join("renamed").exists());
    client.unmount().await.unwrap();
}
