//! Flavours of exports, as clients of version 3 see them.

use crate::{
    Export, Fault, FileSystem, Identities, MemoryFs, Nfsd, Securities, Security, Squash,
    testing::{Believed, Client, SECRET, env, plain},
};
use rpcrdma_nfs::{
    Call,
    mount::{self, DirectoryPath, MountReply},
    nfsacl,
    v3::{self, Handle, NewAttributes},
};
use rpcrdma_oncrpc::{AuthStat, Rejection, gss::GssService};
use rpcrdma_xdr::Encoder;
use std::sync::Arc;

const TOO_WEAK: Rejection = Rejection::Auth(AuthStat::TOO_WEAK);
const SERVICES: [GssService; 3] = [GssService::Authentication, GssService::Integrity, GssService::Privacy];

/// A server of one export that takes these flavours. All callers may do everything in its root.
fn serving(securities: &[Security]) -> Client {
    let tree = Arc::new(MemoryFs::new(1 << 20, &env()));
    let all = NewAttributes { mode: Some(0o777), ..NewAttributes::default() };
    let root = crate::Via::caller(crate::Caller::root(), tree.root());
    let set: Result<_, Fault> =
        crate::testing::wait(tree.set_attributes(root, all.into(), None)).map_err(|it| it.fault);
    set.unwrap();
    let identities = Identities { squash: Squash::Root, ..Identities::default() };
    let securities = Securities::new(securities.iter().copied());
    let export = Export::new("/", tree).with_identities(identities).with_securities(securities);
    Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap().with_flavour(Arc::new(Believed), &env()))
}

fn by(client: &Client, service: GssService) -> Client {
    let mut alice = client.as_user(7, 7, &[]);
    alice.proven = Some((service, "alice@REALM"));
    alice
}

/// The error with which the server refuses a call, if it does.
fn refusal<C: Call>(client: &Client, call: C) -> Option<Rejection> {
    let mut encoder = Encoder::new();
    call.encode(&mut encoder);
    client.raw(C::PROGRAM, C::VERSION, C::PROCEDURE, encoder.finish()).err()
}

fn told(client: &Client) -> Vec<u32> {
    match client.ask(mount::Mount { path: DirectoryPath("/".into()) }) {
        MountReply::Ok { flavors, .. } => flavors,
        MountReply::Failed(status) => panic!("{status}"),
    }
}

/// proves: NFS3-2623-2.7-a
#[test]
fn mount_tells_what_the_export_takes() {
    use Security::{Krb5, Krb5i, Krb5p, Sys};
    for (securities, numbers) in
        [(&[Sys][..], &[1][..]), (&[Krb5p, Krb5i, Krb5], &[390_005, 390_004, 390_003]), (&[Sys, Krb5], &[1, 390_003])]
    {
        let client = serving(securities);
        assert_eq!(told(&client), numbers, "asked with AUTH_SYS");
        assert_eq!(told(&by(&client, GssService::Integrity)), numbers, "and with Kerberos");
    }
}

/// proves: NFS3-2623-2.3-a
#[test]
fn a_flavour_that_is_not_taken_is_too_weak() {
    let services = [Security::Krb5, Security::Krb5i, Security::Krb5p];
    for (one, service) in services.into_iter().zip(SERVICES) {
        let weak = serving(&[one]);
        let client = by(&weak, service);
        let root = weak.root();
        let file = client.new_file(&root, "file");
        assert_eq!(client.attributes(&file).unwrap().uid, 1000, "as who it is here, whatever it says beside");
        for other in SERVICES.into_iter().filter(|other| *other != service) {
            let read = v3::Read { file: file.clone(), offset: 0, count: 1 };
            assert_eq!(refusal(&by(&weak, other), read), Some(TOO_WEAK), "{other:?} for {one}");
        }
        // Without Kerberos, as the file's owner.
        let (claims, get) = (weak.as_user(1000, 1000, &[]), v3::GetAttributes { file: file.clone() });
        assert_eq!(refusal(&claims, get), Some(TOO_WEAK));
        let list =
            v3::ReadDirectory { directory: root.clone(), cookie: 0, verifier: v3::Verifier::default(), count: 999 };
        assert_eq!(refusal(&claims, list), Some(TOO_WEAK));
        let remove = v3::Remove { directory: root.clone(), name: "file".into() };
        assert_eq!(refusal(&claims, remove), Some(TOO_WEAK));
        let acl = nfsacl::GetAcl { file: file.clone(), mask: 1 };
        assert_eq!(refusal(&claims, acl), Some(TOO_WEAK), "nor by NFSACL");
        assert!(client.attributes(&file).is_ok());
    }
}

/// proves: NFS3-2623-2.3-b
#[test]
fn what_is_asked_of_the_root_before_a_flavour_is_known_is_answered() {
    let weak = serving(&[Security::Krb5p]);
    let root = weak.root();
    assert!(weak.attributes(&root).is_ok());
    assert!(plain(weak.ask(v3::FileSystemInfo { root: root.clone() })).is_ok());
    let access = v3::Access { file: root.clone(), rights: 1 };
    assert_eq!(refusal(&weak, access), Some(TOO_WEAK));
    let of_file = by(&weak, GssService::Privacy).new_file(&root, "file");
    assert_eq!(refusal(&weak, v3::FileSystemInfo { root: of_file }), Some(TOO_WEAK));
    let forged = Handle::new(&[7; 32]).unwrap();
    assert_eq!(weak.attributes(&forged).err(), Some(v3::Status::BADHANDLE), "which is no file of any export");
}

/// Clients call MOUNT with AUTH_SYS, whatever NFS uses. If the export does not take it, it does not prove who calls.
#[test]
fn who_looks_names_up_by_mount_without_the_flavour_is_nobody() {
    let weak = serving(&[Security::Krb5]);
    let alice = by(&weak, GssService::Authentication);
    let root = weak.root();
    let private = alice.new_directory(&root, "private");
    alice.new_directory(&private, "inside");
    alice.set(&private, NewAttributes { mode: Some(0o700), ..NewAttributes::default() }).unwrap();
    assert!(weak.mount("/private").is_ok());
    assert_eq!(weak.as_user(1000, 1000, &[]).mount("/private/inside"), Err(mount::Status::ACCES));
    assert!(alice.mount("/private/inside").is_ok());
}
