//! The service of the status monitor (program 100024, version 1).
//!
//! Other hosts call SM_NOTIFY: it concerns only the host with the name in the notice, at the address from which the
//! notice comes. In a datagram of UDP anybody can forge the sender's address. So such a notice has to come from a port
//! that only system programs can use, and the server limits how often it believes notices of one host;
//! `docs/threat-model.md` says what risk remains. SM_STAT tells a host whether we monitor it. The other procedures are
//! for the lockd of the monitor's own host; but here lockd is in the same program and does not call them, so they do
//! nothing, and report that if their reply can.

use super::Monitor;
use crate::mount::results;
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::nsm::{self, Outcome, procedure};
use rpcrdma_oncrpc::{Answer, CallContext, Service, TransportKind};
use rpcrdma_xdr::{Decode, Decoder};
use std::sync::{Arc, atomic::Ordering};

/// The ports that only system programs can use on most hosts.
const PRIVILEGED_PORTS: std::ops::Range<u16> = 1..1024;

/// The service.
pub(crate) struct NsmService(pub(crate) Arc<Monitor>);

impl Service for NsmService {
    fn program(&self) -> u32 {
        nsm::PROGRAM
    }

    fn version(&self) -> u32 {
        nsm::VERSION
    }

    fn is_idempotent(&self, _: u32) -> bool {
        // The table recognises a state that it already knows, so the server need not keep a reply.
        true
    }

    fn call(&self, context: CallContext, procedure: u32, args: Decoder) -> BoxFuture<'static, Answer> {
        let answer = execute(&self.0, &context, procedure, args).unwrap_or_else(|answer| answer);
        Box::pin(std::future::ready(answer))
    }
}

fn decode<A: Decode>(mut args: Decoder) -> Result<A, Answer> {
    let value = A::decode(&mut args)?;
    args.finish()?;
    Ok(value)
}

// NSM-1-e
fn execute(monitor: &Monitor, context: &CallContext, procedure: u32, args: Decoder) -> Result<Answer, Answer> {
    let peer = context.connection.peer;
    let address = peer.ip().to_canonical();
    // Odd, and never negative as a signed number.
    let state = monitor.state_number() as i32;
    Ok(match procedure {
        procedure::STAT => {
            let nsm::Stat { name } = decode(args)?;
            let is_monitored = monitor.hosts().is_monitored(address, name.as_slice());
            let outcome = if is_monitored { Outcome::Succeeded } else { Outcome::Failed };
            results(&nsm::StatReply { outcome, state })
        }
        procedure::NOTIFY => {
            let nsm::Notify { name, state } = decode(args)?;
            let is_datagram = context.connection.kind == TransportKind::Udp;
            // NSM-1-d
            if is_datagram && !PRIVILEGED_PORTS.contains(&peer.port()) {
                monitor.totals.disbelieved.fetch_add(1, Ordering::Relaxed);
                // The same reply as for any other: the sender learns nothing.
                return Ok(results(&()));
            }
            match monitor.hear(address, name.as_slice(), state as u32) {
                true => results(&()),
                // The notice comes again.
                false => Answer::Nothing,
            }
        }
        procedure::MONITOR => {
            decode::<nsm::Monitor>(args)?;
            results(&nsm::StatReply { outcome: Outcome::Failed, state })
        }
        procedure::UNMONITOR => {
            decode::<nsm::Unmonitor>(args)?;
            results(&nsm::State { state })
        }
        procedure::UNMONITOR_ALL => {
            decode::<nsm::UnmonitorAll>(args)?;
            results(&nsm::State { state })
        }
        procedure::SIMULATE_CRASH => {
            decode::<nsm::SimulateCrash>(args)?;
            results(&())
        }
        _ => return Err(Answer::ProcUnavail),
    })
}
