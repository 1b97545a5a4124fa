//! Calls that the server may have executed before, and calls that the server wants later.

#[allow(dead_code, reason = "each test file uses its share")]
mod scripted;

use rpcrdma_nfs::v3::{self, Answer, FileType, Name, NewAttributes, Path, Procedure, RenameInfo, Status};
use rpcrdma_nfs_client::Cause;
use scripted::{Scripted, again, attributes, client, failed, found, handle, lookup_failed, once};

/// MKDIR, which `mkdir` answers, and then LOOKUP, which `lookup` answers.
async fn mkdir(mkdir: fn() -> Scripted, lookup: fn() -> Scripted) -> Result<v3::Created, Option<Cause>> {
    let nfs = client(move |procedure, _| match procedure {
        Procedure::MakeDirectory => mkdir(),
        Procedure::Lookup => lookup(),
        other => panic!("{other:?}"),
    });
    nfs.mkdir(&handle("dir"), &Name::from("new"), NewAttributes::default()).await.map_err(|error| error.cause())
}

/// proves: ULB-3.1-d
#[tokio::test]
async fn exists_is_success_only_for_a_retransmission_that_left_what_it_should() {
    let exists_again = || again(&failed(Status::EXIST));
    let made = mkdir(exists_again, || once(&found(FileType::Directory))).await;
    assert_eq!(made.unwrap().file, Some(handle("found")));
    let first_time = mkdir(|| once(&failed(Status::EXIST)), || panic!("no need to look")).await;
    assert_eq!(first_time, Err(Some(Cause::Exists)));
    let something_else = mkdir(exists_again, || once(&found(FileType::Regular))).await;
    assert_eq!(something_else, Err(Some(Cause::Exists)));
    let another_error = mkdir(|| again(&failed(Status::NOSPC)), || panic!("no need to look")).await;
    assert_eq!(another_error, Err(Some(Cause::NoSpace)));
}

#[tokio::test]
async fn a_symbolic_link_must_point_to_the_same() {
    for (target, expected) in [("there", Ok(())), ("elsewhere", Err(Some(Cause::Exists)))] {
        let nfs = client(move |procedure, _| match procedure {
            Procedure::SymbolicLink => again(&failed(Status::EXIST)),
            Procedure::Lookup => once(&found(FileType::Symlink)),
            Procedure::ReadLink => {
                let ok = v3::ReadLinkOk { attributes: None, path: Path::from(target) };
                once(&Answer::<_, Option<v3::Attributes>>::Ok(ok))
            }
            other => panic!("{other:?}"),
        });
        let made =
            nfs.symlink(&handle("dir"), &Name::from("new"), NewAttributes::default(), &Path::from("there")).await;
        assert_eq!(made.map(|_| ()).map_err(|error| error.cause()), expected, "{target}");
    }
}

#[tokio::test]
async fn a_removed_name_must_be_gone() {
    for (gone, expected) in [(true, Ok(())), (false, Err(Some(Cause::Absent)))] {
        let nfs = client(move |procedure, _| match procedure {
            Procedure::Remove => again(&failed(Status::NOENT)),
            Procedure::Lookup if gone => once(&lookup_failed(Status::NOENT)),
            Procedure::Lookup => once(&found(FileType::Regular)),
            other => panic!("{other:?}"),
        });
        let removed = nfs.remove(&handle("dir"), &Name::from("old")).await;
        assert_eq!(removed.map(|_| ()).map_err(|error| error.cause()), expected);
    }
}

#[tokio::test]
async fn a_rename_must_have_left_one_name_and_made_the_other() {
    for (from_gone, to_there, ok) in [(true, true, true), (false, true, false), (true, false, false)] {
        let nfs = client(move |procedure, decoder| match procedure {
            Procedure::Rename => again(&Answer::<(), _>::failed(Status::NOENT, RenameInfo::default())),
            Procedure::Lookup => {
                let lookup: v3::Lookup = scripted::args(decoder);
                let there = if lookup.name == Name::from("from") { !from_gone } else { to_there };
                if there { once(&found(FileType::Regular)) } else { once(&lookup_failed(Status::NOENT)) }
            }
            other => panic!("{other:?}"),
        });
        let renamed = nfs.rename(&handle("a"), &Name::from("from"), &handle("b"), &Name::from("to")).await;
        assert_eq!(renamed.is_ok(), ok, "{from_gone} {to_there}");
    }
}

#[tokio::test]
async fn a_link_must_lead_to_the_same_file() {
    for (file_id, ok) in [(2, true), (3, false)] {
        let nfs = client(move |procedure, _| match procedure {
            Procedure::Link => again(&Answer::<(), _>::failed(Status::EXIST, v3::LinkInfo::default())),
            Procedure::Lookup => once(&found(FileType::Regular)),
            Procedure::GetAttributes => {
                once(&Answer::<_, ()>::Ok(v3::Attributes { file_id, ..attributes(FileType::Regular) }))
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(nfs.link(&handle("file"), &handle("dir"), &Name::from("name")).await.is_ok(), ok);
    }
}

#[tokio::test(start_paused = true)]
async fn try_again_later_is_tried_again_later() {
    let mut times = 0;
    let nfs = client(move |_, _| {
        times += 1;
        if times < 5 {
            once(&Answer::<(), ()>::failed(Status::JUKEBOX, ()))
        } else {
            once(&Answer::<_, ()>::Ok(attributes(FileType::Regular)))
        }
    });
    let begin = tokio::time::Instant::now();
    nfs.getattr(&handle("file")).await.unwrap();
    let waited = begin.elapsed();
    assert_eq!(waited.as_millis(), 100 + 200 + 400 + 800);
}

/// The server answers "later" this many times before it succeeds.
async fn patience(later: u32) -> (Result<(), Option<Cause>>, std::time::Duration) {
    let mut left = later;
    let nfs = client(move |_, _| match left.checked_sub(1) {
        Some(fewer) => {
            left = fewer;
            once(&Answer::<(), ()>::failed(Status::JUKEBOX, ()))
        }
        None => once(&Answer::<_, ()>::Ok(attributes(FileType::Regular))),
    });
    let begin = tokio::time::Instant::now();
    let answer = nfs.getattr(&handle("file")).await;
    (answer.map(drop).map_err(|error| error.cause()), begin.elapsed())
}

/// Pauses of 0.1 s, doubled up to 12.8 s, are 25.5 s after 8 of them; the rest of ten minutes is 38 pauses of 15 s and
/// one of 4.5 s.
#[tokio::test(start_paused = true)]
async fn later_is_not_waited_for_without_end() {
    let ten_minutes = std::time::Duration::from_secs(600);
    assert_eq!(patience(47).await, (Ok(()), ten_minutes), "the last attempt is made at the limit");
    assert_eq!(patience(48).await, (Err(Some(Cause::Later)), ten_minutes), "and none after it");
    assert_eq!(patience(u32::MAX).await, (Err(Some(Cause::Later)), ten_minutes));
}
