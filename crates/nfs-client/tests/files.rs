//! [`Files`] over a server of version 3 that returns as little as it may.

#[allow(dead_code, reason = "each test file uses its share")]
mod scripted;

use rpcrdma_nfs::{
    attr::{FileType, NewAttributes, SetTime, Time},
    v3::{self, Answer, Procedure, Status, Verifier, WeakCache},
};
use rpcrdma_nfs_client::{Access, Cause, CreateHow, Error, Files, Handle, Name, NodeKind, Place, Transfer};
use scripted::{Scripted, args, attributes, client, found, handle, lookup_failed, once};
use std::sync::{Arc, Mutex};

fn neutral(text: &str) -> Handle {
    handle(text).into()
}

fn name(text: &str) -> Name {
    Name::from(text)
}

/// A server that makes everything and returns no handle; `lookup` answers the LOOKUP for the handle.
fn silent_maker(lookup: fn() -> Scripted) -> Files {
    let nfs = client(move |procedure, _| match procedure {
        Procedure::Lookup => lookup(),
        _ => once(&Answer::<_, WeakCache>::Ok(v3::Created {
            file: None,
            attributes: None,
            directory: WeakCache::default(),
        })),
    });
    nfs.into()
}

#[tokio::test]
async fn a_handle_that_is_not_told_is_looked_up() {
    let files = silent_maker(|| once(&found(v3::FileType::Regular)));
    let (directory, new) = (neutral("dir"), NewAttributes::default());
    let made = files.create(&directory, &name("new"), CreateHow::Guarded(new)).await.unwrap();
    assert_eq!((made.file.handle(), made.attributes), (neutral("found"), None));
    assert_eq!(files.mkdir(&directory, &name("new"), new).await.unwrap().file, neutral("found"));
    assert_eq!(files.symlink(&directory, &name("new"), new, "there".into()).await.unwrap().file, neutral("found"));
    assert_eq!(files.mknod(&directory, &name("new"), NodeKind::Fifo, new).await.unwrap().file, neutral("found"));
}

/// A caller that cleans up has to know that the file exists.
#[tokio::test]
async fn what_was_made_and_cannot_be_used_was_made() {
    let files = silent_maker(|| once(&lookup_failed(Status::ACCES)));
    let how = CreateHow::Guarded(NewAttributes::default());
    let error = files.create(&neutral("dir"), &name("new"), how).await.unwrap_err();
    assert!(error.is_after_creation() && !error.has_made_nothing() && error.is_denied(), "{error:?}");
    assert_eq!(error.procedure(), Some("LOOKUP"));

    let refusing = Files::from(client(|_, _| once(&scripted::failed(Status::ACCES))));
    let error = refusing.create(&neutral("dir"), &name("new"), how).await.unwrap_err();
    assert!(!error.is_after_creation() && error.has_made_nothing() && error.is_denied(), "{error:?}");
}

#[tokio::test]
async fn a_mask_takes_rights_from_what_is_made_and_from_nothing_else() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    let files = Files::from(client(move |procedure, decoder| {
        let made = || {
            let (file, attributes) = (Some(handle("made")), None);
            once(&Answer::<_, WeakCache>::Ok(v3::Created { file, attributes, directory: WeakCache::default() }))
        };
        let (attributes, answer) = match procedure {
            Procedure::MakeDirectory => (args::<v3::MakeDirectory>(decoder).attributes, made()),
            Procedure::Create => match args::<v3::Create>(decoder).how {
                v3::CreateHow::Unchecked(attributes) => (attributes, made()),
                other => panic!("{other:?}"),
            },
            Procedure::SetAttributes => {
                let set: v3::SetAttributes = args(decoder);
                assert_eq!(set.guard, Some(v3::Time { seconds: 7, nanoseconds: 8 }));
                (set.attributes, once(&Answer::<_, WeakCache>::Ok(WeakCache::default())))
            }
            other => panic!("{other:?}"),
        };
        told.lock().unwrap().push((attributes.mode, attributes.modified));
        answer
    }));
    let modified = SetTime::Client(Time::new(-5, 9));
    let new = NewAttributes { mode: Some(0o777), umask: 0o027, modified, ..NewAttributes::default() };
    files.mkdir(&neutral("dir"), &name("new"), new).await.unwrap();
    files.create(&neutral("dir"), &name("new"), CreateHow::Unchecked(new)).await.unwrap();
    files.setattr(&neutral("made"), new, Some(Time::new(7, 8))).await.unwrap();
    // If the protocol cannot express a time, the nearest possible one is sent.
    let earliest = v3::SetTime::Client(v3::Time::default());
    let expected = [(Some(0o750), earliest), (Some(0o750), earliest), (Some(0o777), earliest)];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn what_a_listing_leaves_out_is_asked_for() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let told = calls.clone();
    let files = Files::from(client(move |procedure, decoder| {
        told.lock().unwrap().push(procedure);
        match procedure {
            Procedure::ReadDirectoryPlus => {
                let whole = (Some(attributes(v3::FileType::Regular)), Some(handle("whole")));
                let entries = [("whole", whole), ("bare", (None, None))].into_iter().zip(1..);
                let entries = entries.map(|((name, (attributes, file)), cookie)| v3::EntryPlus {
                    file_id: cookie,
                    name: v3::Name::from(name),
                    cookie,
                    attributes,
                    file,
                });
                let (entries, verifier) = (entries.collect(), Verifier::default());
                let ok = v3::ReadDirectoryPlusOk { attributes: None, verifier, entries, end: true };
                once(&Answer::<_, Option<v3::Attributes>>::Ok(ok))
            }
            Procedure::Lookup => {
                assert_eq!(args::<v3::Lookup>(decoder).name, v3::Name::from("bare"));
                let ok = v3::LookupOk { file: handle("bare"), attributes: None, directory: None };
                once(&Answer::<_, Option<v3::Attributes>>::Ok(ok))
            }
            _ => once(&Answer::<_, ()>::Ok(attributes(v3::FileType::Directory))),
        }
    }));
    let directory = neutral("dir");
    let mut listing = files.list(&directory, Transfer { read: 4096, write: 4096, directory: 4096 });
    let mut seen = Vec::new();
    while let Some(entry) = listing.next().await.unwrap() {
        seen.push(files.found(&directory, entry).await.unwrap());
    }
    let place = |name| Some(Place { directory: directory.clone(), name: Name::from(name) });
    assert_eq!(seen.iter().map(|found| found.place.clone()).collect::<Vec<_>>(), [place("whole"), place("bare")]);
    assert_eq!((&seen[0].file, seen[0].attributes.file_type), (&neutral("whole"), FileType::Regular));
    assert_eq!((&seen[1].file, seen[1].attributes.file_type), (&neutral("bare"), FileType::Directory));
    use Procedure::{GetAttributes, Lookup, ReadDirectoryPlus};
    assert_eq!(*calls.lock().unwrap(), [ReadDirectoryPlus, Lookup, GetAttributes]);
}

#[tokio::test]
async fn to_open_and_close_costs_no_call_and_a_name_costs_one() {
    let calls = Arc::new(Mutex::new(0));
    let counted = calls.clone();
    let files = Files::from(client(move |procedure, _| {
        assert_eq!(procedure, Procedure::Lookup);
        *counted.lock().unwrap() += 1;
        once(&found(v3::FileType::Regular))
    }));
    let there = files.lookup(&neutral("dir"), &name("file")).await.unwrap();
    assert_eq!(there.place, Some(Place { directory: neutral("dir"), name: name("file") }));
    let file = files.open(&there, Access::Read).await.unwrap();
    assert_eq!(file.handle(), neutral("found"));
    file.close().await.unwrap();
    assert_eq!(*calls.lock().unwrap(), 1);
    let file = files.open_at(&neutral("dir"), &name("file"), Access::Both).await.unwrap();
    assert_eq!((file.handle(), *calls.lock().unwrap()), (neutral("found"), 2));
}

/// Handles of other versions may be longer than version 3 allows.
#[tokio::test]
async fn a_handle_of_another_version_is_refused_without_a_call() {
    let files = Files::from(client(|procedure, _| panic!("{procedure:?}")));
    let long = Handle::new(&[7; 65]).unwrap();
    assert_eq!(files.getattr(&long).await.unwrap_err().cause(), Some(Cause::BadHandle));
    assert_eq!(files.open(&long, Access::Read).await.unwrap_err().cause(), Some(Cause::BadHandle));
    let refused = files.lookup(&long, &name("file")).await.unwrap_err();
    assert!(matches!(refused, Error::Status { procedure: "LOOKUP", .. }), "{refused:?}");
    assert!(Handle::new(&[7; 129]).is_none());
}
