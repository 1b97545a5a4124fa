//! Choosing calls by XID, by procedure, or by how long they took.

mod common;

use common::{Kept, captured, captured_steps, exchange, read};
use rpcrdma_capture::{
    Event, EventKind, Sink, Summary, read_capture,
    show::{Filtered, MAX_HELD_BYTES, Wanted},
};
use std::{collections::BTreeSet, io, time::Duration};

const HERE: &str = "192.0.2.1:40000";
const THERE: &str = "192.0.2.2:20049";

/// A sink whose events a test can read afterwards.
struct Into<'a>(&'a mut Kept);

impl Sink for Into<'_> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.0.event(event)
    }

    fn finish(&mut self, _: &Summary) -> io::Result<()> {
        Ok(())
    }
}

fn filtered(file: &[u8], wanted: Wanted) -> Vec<Event> {
    let mut kept = Kept::default();
    read_capture(file, &mut Filtered::new(wanted, Into(&mut kept))).unwrap();
    kept.0
}

fn xids(events: &[Event]) -> BTreeSet<u32> {
    events.iter().map(|event| event.call.unwrap().xid).collect()
}

fn file() -> Vec<u8> {
    captured(HERE, THERE, 32 << 10).0
}

fn of_procedures(names: &[&str]) -> Wanted {
    Wanted { procedures: names.iter().map(|&name| name.to_owned()).collect(), ..Wanted::default() }
}

/// The output has everything that belongs to a call, also its RDMA Reads and Writes, and nothing else.
#[test]
fn a_call_comes_with_all_that_belongs_to_it() {
    let all = read(&file()).0;
    for xid in 0x101..=0x107 {
        let shown = filtered(&file(), Wanted { xids: vec![xid], ..Wanted::default() });
        let expected = all.iter().filter(|event| event.call.is_some_and(|call| call.xid == xid));
        assert_eq!(format!("{shown:?}"), format!("{:?}", expected.collect::<Vec<_>>()), "{xid:#x}");
    }
    assert_eq!(
        xids(&filtered(&file(), Wanted { xids: vec![0x102, 0x107], ..Wanted::default() })),
        [0x102, 0x107].into()
    );
    assert!(filtered(&file(), Wanted { xids: vec![0x99], ..Wanted::default() }).is_empty());
}

#[test]
fn procedures_are_found_by_name_in_any_case() {
    assert_eq!(xids(&filtered(&file(), of_procedures(&["read", "Write"]))), [0x102, 0x103].into());
    let shown = filtered(&file(), of_procedures(&["SYMLINK"]));
    assert_eq!(xids(&shown), [0x104].into());
    assert!(matches!(shown[0].kind, EventKind::Send { .. }), "a long call begins before it is named: {shown:?}");
    assert_eq!(shown.len(), 4);
}

#[test]
fn slow_calls_are_those_above_the_limit() {
    let all = read(&file()).0;
    let took = |event: &Event| match event.kind {
        EventKind::Send { since_call: Some(took), .. } => Some((event.call.unwrap().xid, took)),
        _ => None,
    };
    let times: Vec<(u32, Duration)> = all.iter().filter_map(took).collect();
    let (_, middle) = times[1];
    for limit in [middle, middle - Duration::from_nanos(1)] {
        let shown = filtered(&file(), Wanted { slower_than: Some(limit), ..Wanted::default() });
        let mut expected: BTreeSet<u32> = times.iter().filter(|(_, took)| *took > limit).map(|(xid, _)| *xid).collect();
        let last = all.last().unwrap().time;
        let asked = all.iter().find(|event| event.call.is_some_and(|call| call.xid == 0x107)).unwrap().time;
        // This call has no reply: it waited until the capture's end.
        expected.extend((last - asked > limit).then_some(0x107));
        assert_eq!(xids(&shown), expected, "{limit:?}");
        assert_eq!(xids(&shown).contains(&times[1].0), limit < middle);
    }
}

/// Calls without replies are held up to the limit; beyond it, the oldest is shown so that it is not lost.
#[test]
fn what_is_held_ends_at_its_limit() {
    let events = read(&captured_steps(exchange(), HERE, THERE, 32 << 10).0).0;
    let call = events.iter().find(|event| event.call.is_some_and(|call| call.xid == 0x107)).unwrap();
    let mut kept = Kept::default();
    let wanted = Wanted { slower_than: Some(Duration::from_secs(1)), ..Wanted::default() };
    let mut filter = Filtered::new(wanted, Into(&mut kept));
    let number = |number: u64| {
        let mut event = call.clone();
        event.call.as_mut().unwrap().number = number;
        event
    };
    // Each call counts as more than a KiB.
    let more_than_fit = (MAX_HELD_BYTES / 1024) as u64;
    for at in 0..more_than_fit {
        filter.event(&number(at)).unwrap();
    }
    drop(filter);
    assert!(!kept.0.is_empty() && (kept.0.len() as u64) < more_than_fit);
    assert_eq!(kept.0[0].call.unwrap().number, 0, "the oldest");
}
