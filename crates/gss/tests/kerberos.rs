//! The library against a real KDC: contexts between a user and a service, and tokens that must not make one.

use rpcrdma_gss::{
    Context, Credential, Error, Gss, Kind, NameKind, Progress,
    realm::{REALM, Realm, SERVICE, within},
};
use std::{fs, time::Duration};

fn gss() -> Gss {
    Gss::load().unwrap()
}

fn user(realm: &Realm, name: &str) -> Credential {
    let principal = gss().name(&format!("{name}@{REALM}"), NameKind::Principal).unwrap();
    let cache = realm.folder().join(format!("cache.{name}"));
    gss().initiate_with_keytab(&principal, &realm.users(), &cache).unwrap()
}

/// The first token that a user sends to the service, and the initiator that reads the answer.
fn first(credential: &Credential) -> (rpcrdma_gss::Initiator, rpcrdma_gss::Octets) {
    let service = gss().name(SERVICE, NameKind::Service).unwrap();
    match gss().initiator(credential, service).step(&[]).unwrap() {
        Progress::More { unfinished, token } => (unfinished, token),
        Progress::Done { .. } => panic!("the service has not proven anything yet"),
    }
}

fn accept(keytab: &Credential, token: &[u8]) -> Result<(Context, rpcrdma_gss::Octets), Error> {
    match gss().acceptor(keytab).step(token)? {
        Progress::Done { context, token } => Ok((context, token)),
        Progress::More { .. } => panic!("Kerberos needs one token of the initiator's"),
    }
}

/// Both ends of a context.
fn both(realm: &Realm, name: &str) -> (Context, Context) {
    let keytab = gss().accept_with(Some(&realm.keytab())).unwrap();
    let (initiator, token) = first(&user(realm, name));
    let (theirs, token) = accept(&keytab, &token).unwrap();
    match initiator.step(&token).unwrap() {
        Progress::Done { context, token } => {
            assert!(token.is_empty());
            (context, theirs)
        }
        Progress::More { .. } => panic!("nothing is missing"),
    }
}

#[test]
fn both_ends_know_each_other() {
    within("both_ends_know_each_other", |realm| {
        let (ours, theirs) = both(realm, "alice");
        for context in [&ours, &theirs] {
            assert_eq!(context.initiator().unwrap().display().unwrap(), format!("alice@{REALM}"));
            assert_eq!(context.acceptor().unwrap().display().unwrap(), format!("nfs/localhost@{REALM}"));
            let lifetime = context.lifetime().unwrap().unwrap();
            assert!(lifetime > Duration::from_secs(3600) && lifetime < Duration::from_secs(3 * 86_400), "{lifetime:?}");
        }
        assert_eq!(theirs.initiator().unwrap().local().unwrap(), "alice");
        let error = theirs.acceptor().unwrap().local().unwrap_err();
        assert!(error.to_string().contains("no rule makes the principal a local user"), "{error}");
    });
}

#[test]
fn what_one_end_signs_the_other_verifies_and_nothing_else() {
    within("what_one_end_signs_the_other_verifies_and_nothing_else", |realm| {
        let (mut ours, mut theirs) = both(realm, "alice");
        let (_, mut others) = both(realm, "bob");
        for len in [0, 1, 5, 4096, 1 << 20] {
            let message = vec![7; len];
            let checksum = ours.sign(&message).unwrap();
            theirs.verify(&message, &checksum).unwrap();
            theirs.verify(&message, &checksum).expect("again, as messages may come twice");
            assert_eq!(others.verify(&message, &checksum).unwrap_err().kind(), Kind::BadChecksum);
            assert!(ours.verify(&message, &checksum).is_err(), "one's own");
            let longer = [&message[..], &[7]].concat();
            assert_eq!(theirs.verify(&longer, &checksum).unwrap_err().kind(), Kind::BadChecksum);
            for bad in 0..checksum.len() {
                let mut checksum = checksum.to_vec();
                checksum[bad] ^= 0x10;
                assert!(theirs.verify(&message, &checksum).is_err(), "byte {bad}");
                assert!(theirs.verify(&message, &checksum[..bad]).is_err(), "{bad} bytes");
            }
        }
        let late = [1, 2, 3].map(|message| ours.sign(&[message]).unwrap());
        for (message, checksum) in [1, 2, 3].into_iter().zip(&late).rev() {
            theirs.verify(&[message], checksum).expect("in any order");
        }
    });
}

#[test]
fn what_one_end_seals_the_other_opens_and_nobody_reads() {
    within("what_one_end_seals_the_other_opens_and_nobody_reads", |realm| {
        let (mut ours, mut theirs) = both(realm, "alice");
        let (_, mut others) = both(realm, "bob");
        for len in [0, 1, 5, 4096, 1 << 20] {
            let message = vec![7; len];
            let sealed = ours.seal(&message).unwrap();
            assert!(len < 16 || !sealed.windows(16).any(|window| window == &message[..16]), "it can be read");
            let opened = theirs.open(&sealed).unwrap();
            assert!(opened.is_confidential);
            assert_eq!(&opened.octets[..], &message[..]);
            assert!(others.open(&sealed).is_err() && ours.open(&sealed).is_err());
            for bad in (0..sealed.len()).step_by(1 + sealed.len() / 50) {
                let mut broken = sealed.to_vec();
                broken[bad] ^= 0x10;
                assert!(theirs.open(&broken).is_err(), "byte {bad}");
                assert!(theirs.open(&sealed[..bad]).is_err(), "{bad} bytes");
            }
        }
    });
}

#[test]
fn tokens_that_are_no_users_make_no_context() {
    within("tokens_that_are_no_users_make_no_context", |realm| {
        let keytab = gss().accept_with(Some(&realm.keytab())).unwrap();
        let (_, token) = first(&user(realm, "alice"));
        for len in (0..token.len()).step_by(7) {
            assert!(accept(&keytab, &token[..len]).is_err(), "{len} bytes of it");
        }
        // No key protects a few bytes of a token: with these changed, a token may make one context of the same user;
        // after that it is a replay.
        let accepted = (0..token.len()).filter_map(|bad| {
            let mut broken = token.to_vec();
            broken[bad] ^= 1;
            accept(&keytab, &broken).ok()
        });
        let names: Vec<_> = accepted.map(|(context, _)| context.initiator().unwrap().display().unwrap()).collect();
        assert!(names.len() <= 1 && names.iter().all(|name| *name == format!("alice@{REALM}")), "{names:?}");
        assert_eq!(accept(&keytab, &[0x60; 1 << 20]).unwrap_err().kind(), Kind::BadToken);
        let (_, token) = first(&user(realm, "alice"));
        accept(&keytab, &token).expect("the token as it was sent");
        let again = accept(&keytab, &token).unwrap_err();
        assert!(again.to_string().contains("replay"), "{again}");
    });
}

#[test]
fn an_answer_that_is_not_the_services_ends_the_initiator() {
    within("an_answer_that_is_not_the_services_ends_the_initiator", |realm| {
        let keytab = gss().accept_with(Some(&realm.keytab())).unwrap();
        let alice = user(realm, "alice");
        let (initiator, token) = first(&alice);
        let (_, answer) = accept(&keytab, &token).unwrap();
        let (others, _) = first(&alice);
        assert!(others.step(&answer).is_err(), "the answer to another's token");
        assert!(initiator.step(&answer[..answer.len() - 1]).is_err());
    });
}

#[test]
fn what_is_missing_is_named() {
    within("what_is_missing_is_named", |realm| {
        let error = gss().initiate_with_cache().unwrap_err();
        assert_eq!(error.kind(), Kind::NoCredential, "{error}");
        let nowhere = realm.folder().join("nowhere");
        let error = gss().accept_with(Some(&nowhere)).unwrap_err();
        assert!(error.to_string().contains("nowhere"), "{error}");
        fs::write(&nowhere, "no keytab").unwrap();
        assert!(gss().accept_with(Some(&nowhere)).is_err());
        let service = gss().name(&format!("nfs/elsewhere@{REALM}"), NameKind::Principal).unwrap();
        let error = gss().initiator(&user(realm, "alice"), service).step(&[]).unwrap_err();
        assert!(error.to_string().contains("nfs/elsewhere"), "{error}");
    });
}

#[test]
fn the_users_cache_is_taken_as_it_is_and_expires() {
    within("the_users_cache_is_taken_as_it_is_and_expires", |realm| {
        let lifetime = Duration::from_secs(4);
        realm.kinit("bob", "4s").unwrap();
        let keytab = gss().accept_with(None).expect("the machine's own keytab, as the environment says");
        let credential = gss().initiate_with_cache().unwrap();
        let (name, left) = credential.about().unwrap();
        assert_eq!(name.unwrap().display().unwrap(), format!("bob@{REALM}"));
        assert!(left.unwrap() <= lifetime, "{left:?}");
        let (initiator, token) = first(&credential);
        let (_, answer) = accept(&keytab, &token).unwrap();
        let Progress::Done { context: mut ours, .. } = initiator.step(&answer).unwrap() else { panic!("not made") };
        assert!(ours.lifetime().unwrap().unwrap() <= lifetime);
        ours.sign(b"in time").unwrap();
        std::thread::sleep(lifetime + Duration::from_secs(1));
        assert_eq!(ours.lifetime().unwrap_err().kind(), Kind::Expired);
        assert_eq!(credential.about().unwrap_err().kind(), Kind::Expired);
    });
}
