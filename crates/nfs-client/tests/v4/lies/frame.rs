//! The frame of a reply: the number and kind of results, the status, the tag.

use super::{Does, Lie, Must, Row, play};
use rpcrdma_nfs::v4::{Op, Outcome, Results, Status, Tag};

const DOES: [Does; 4] = [Does::Look, Does::Open, Does::Lock, Does::List];

/// The operation that an error of the whole call names.
fn purpose(does: Does) -> Op {
    if does == Does::Look { Op::PutRootFh } else { does.op() }
}

fn rows(does: Does) -> Vec<Row> {
    type Change = fn(&mut Results);
    let refuse = |what| Must::Refuse(purpose(does), what);
    let another = refuse("returned the results of another operation");
    let (fewer, more) = (
        refuse("returned fewer results than there were operations"),
        refuse("returned more results than there were operations"),
    );
    let contradicts = refuse("returned another status than that of the last operation");
    let goes_on = refuse("went on after an operation that failed");
    let lies: Vec<(&'static str, Change, Must)> = vec![
        ("no results", |results| results.results.clear(), fewer),
        ("the first alone", |results| results.results.truncate(1), fewer),
        ("all but the last", |results| drop(results.results.pop()), fewer),
        ("all but the first", |results| drop(results.results.remove(0)), another),
        ("one more", |results| results.results.push(Outcome::LookupP(Ok(()))), more),
        ("many more", |results| results.results.extend(vec![Outcome::LookupP(Ok(())); 100]), Must::NotRead),
        (
            "one more that failed",
            |results| {
                results.results.push(Outcome::LookupP(Err(Status::IO)));
                results.status = Status::IO;
            },
            more,
        ),
        ("the first twice", |results| results.results.insert(0, results.results[0].clone()), more),
        ("another for the first", |results| results.results[0] = Outcome::LookupP(Ok(())), another),
        ("another for the last", |results| *results.results.last_mut().unwrap() = Outcome::LookupP(Ok(())), another),
        ("in another order", |results| results.results.reverse(), another),
        ("a status of its own", |results| results.status = Status::IO, contradicts),
        ("a status that there is not", |results| results.status = Status(u32::MAX), contradicts),
        (
            "no operation, which has succeeded",
            |results| {
                *results.results.last_mut().unwrap() = Outcome::Illegal(Status::OP_ILLEGAL);
            },
            contradicts,
        ),
        (
            "a failure in the middle",
            |results| results.results[1] = Outcome::PutFh(Err(Status::STALE)),
            match does {
                Does::Look => another,
                _ => goes_on,
            },
        ),
        (
            "a failure at the end, and success",
            |results| {
                let last = results.results.len() - 1;
                results.results[last] = Outcome::GetAttr(Err(Status::IO));
            },
            match does {
                Does::Look | Does::Open => contradicts,
                _ => another,
            },
        ),
        (
            "refused as a whole",
            |results| (results.status, results.results) = (Status::PERM, vec![]),
            Must::Tell(Status::PERM),
        ),
        ("tag, another", |results| results.tag = Tag::from("another"), Must::GoOn),
        ("tag, a long one", |results| results.tag = Tag(vec![0xFF; 512].into()), Must::GoOn),
    ];
    lies.into_iter().map(|(field, change, must)| Row { field, lie: Lie::Answer(Box::new(change)), must }).collect()
}

#[tokio::test(start_paused = true)]
async fn an_answer_fits_its_call_or_is_none() {
    for does in DOES {
        for minor in [1, 2] {
            play(minor, does, rows(does)).await;
        }
    }
}

/// A count without enough bytes after it, superfluous bytes, and a tag without an end.
#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_read_is_an_error() {
    const TAG: &[u8] = b"\0\0\0\x08markmark";
    let octets: [(&str, &[u8], &[u8]); 6] = [
        ("results, more than bytes", b"\0\0\0\x08markmark\0\0\0", b"\0\0\0\x08markmark\0\0\x01"),
        ("results, without end", b"\0\0\0\x08markmark\0\0\0", b"\0\0\0\x08markmark\xFF\xFF\xFF"),
        ("tag, one byte too many", TAG, b"\0\0\x04\x01markmark"),
        ("tag, without end", TAG, b"\xFF\xFF\xFF\xFFmarkmark"),
        ("nothing behind the tag", TAG, b"\0\0\0\x10markmark"),
        ("a word too many", TAG, b"\0\0\0\x08markmark\0\0\0\0"),
    ];
    for does in DOES {
        for (field, from, to) in octets {
            for minor in [1, 2] {
                let row = Row { field, lie: Lie::Marked(from, to), must: Must::NotRead };
                play(minor, does, vec![row]).await;
            }
        }
    }
}
