//! NSM.

use super::{Content, Describe, Operation, read::Reading};
use rpcrdma_nfs::nsm::{
    Asker, Monitor, Notify, Outcome, SimulateCrash, Stat, StatReply, State, Unmonitor, UnmonitorAll,
};

/// The arguments of a call.
pub(super) fn arguments(procedure: u32, reading: Reading) -> Option<Content> {
    use rpcrdma_nfs::nsm::procedure::{MONITOR, NOTIFY, NULL, SIMULATE_CRASH, STAT, UNMONITOR, UNMONITOR_ALL};
    Some(match procedure {
        NULL => reading.read::<()>(),
        STAT => reading.read::<Stat>(),
        MONITOR => reading.read::<Monitor>(),
        UNMONITOR => reading.read::<Unmonitor>(),
        UNMONITOR_ALL => reading.read::<UnmonitorAll>(),
        SIMULATE_CRASH => reading.read::<SimulateCrash>(),
        NOTIFY => reading.read::<Notify>(),
        _ => return None,
    })
}

/// The results of a call.
pub(super) fn results(procedure: u32, reading: Reading) -> Option<Content> {
    use rpcrdma_nfs::nsm::procedure::{MONITOR, NOTIFY, NULL, SIMULATE_CRASH, STAT, UNMONITOR, UNMONITOR_ALL};
    Some(match procedure {
        NULL | SIMULATE_CRASH | NOTIFY => reading.read::<()>(),
        STAT | MONITOR => reading.read::<StatReply>(),
        UNMONITOR | UNMONITOR_ALL => reading.read::<State>(),
        _ => return None,
    })
}

/// Real state numbers are not negative.
fn state(to: &mut Operation, state: i32) {
    to.number("state", state as u32);
}

fn asker(to: &mut Operation, asker: &Asker) {
    to.name("for", asker.host.as_slice()).number("program", asker.program).number("procedure", asker.procedure);
}

impl Describe for Stat {
    fn describe(&self, to: &mut Operation) {
        to.name("host", self.name.as_slice());
    }
}

impl Describe for Monitor {
    fn describe(&self, to: &mut Operation) {
        to.name("host", self.name.as_slice());
        asker(to, &self.asker);
    }
}

impl Describe for Unmonitor {
    fn describe(&self, to: &mut Operation) {
        to.name("host", self.name.as_slice());
        asker(to, &self.asker);
    }
}

impl Describe for UnmonitorAll {
    fn describe(&self, to: &mut Operation) {
        asker(to, &self.asker);
    }
}

impl Describe for SimulateCrash {
    fn describe(&self, _: &mut Operation) {}
}

impl Describe for Notify {
    fn describe(&self, to: &mut Operation) {
        to.name("host", self.name.as_slice());
        state(to, self.state);
    }
}

impl Describe for StatReply {
    fn describe(&self, to: &mut Operation) {
        to.flag("failed", self.outcome == Outcome::Failed);
        state(to, self.state);
    }
}

impl Describe for State {
    fn describe(&self, to: &mut Operation) {
        state(to, self.state);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Body, Value, arguments, results};
    use crate::event::ProcedureName;
    use bytes::Bytes;
    use rpcrdma_nfs::nsm;
    use rpcrdma_xdr::{Decoder, Stream};

    fn name(procedure: u32) -> ProcedureName {
        ProcedureName { program: nsm::PROGRAM, version: nsm::VERSION, procedure, callback: false }
    }

    #[test]
    fn a_notice_is_told_with_its_host_and_state() {
        let octets = nsm::notice(b"client\x1b1", 7);
        let body = Body { kept: octets.clone(), missing_bytes: Some(0), items: &[] };
        let decoder = |octets: &Bytes| Decoder::new(Stream::from(octets.clone()));
        let content = arguments(name(6), decoder(&octets), &body).unwrap();
        let [operation] = &content.operations[..] else { panic!("{content:?}") };
        assert_eq!((operation.name, content.problem), ("SM_NOTIFY", None));
        let values: Vec<_> = operation.fields.iter().map(|field| (field.key, field.value.clone())).collect();
        assert_eq!(values, [("host", Value::Name(Bytes::from_static(b"client\x1b1"))), ("state", Value::Number(7)),]);
        assert_eq!(name(6).to_string(), "NSM 1 SM_NOTIFY");
        // Too few bytes, and too many.
        assert!(arguments(name(6), decoder(&octets.slice(..9)), &body).unwrap().problem.is_some());
        let reply = Bytes::from_static(b"\0\0\0\x01\0\0\0\x03");
        let content = results(name(2), decoder(&reply), &body).unwrap();
        let keys: Vec<_> = content.operations[0].fields.iter().map(|field| field.key).collect();
        assert_eq!(keys, ["failed", "state"]);
        assert!(results(name(6), decoder(&reply), &body).unwrap().problem.is_some());
        assert!(results(name(7), decoder(&reply), &body).is_none());
    }
}
