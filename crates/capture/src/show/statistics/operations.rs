//! How often COMPOUNDs asked for each operation, and what the results were.
//!
//! Operations are those that the protocol has: a capture cannot name more. As many of their statuses are shown as of a
//! procedure's.

use super::MAX_STATUSES;
use crate::{content::Content, event::Status};
use std::collections::BTreeMap;

/// What was seen of one operation.
#[derive(Default)]
pub(super) struct Operation {
    pub(super) calls: u64,
    pub(super) answered: u64,
    pub(super) statuses: BTreeMap<String, u64>,
}

/// All that were seen, by name.
#[derive(Default)]
pub(super) struct Operations(pub(super) BTreeMap<&'static str, Operation>);

impl Operations {
    /// Counts the operations in a message, if it is a COMPOUND's.
    pub(super) fn add(&mut self, content: &Content, by_requester: bool) {
        if content.compound.is_none() {
            return;
        }
        for operation in &content.operations {
            let of = self.0.entry(operation.name).or_default();
            if by_requester {
                of.calls = of.calls.saturating_add(1);
            } else if let Some(status) = operation.status {
                of.answered = of.answered.saturating_add(1);
                let status = Status::Nfs4(status).to_string();
                let is_known = of.statuses.contains_key(&status) || of.statuses.len() < MAX_STATUSES;
                *of.statuses.entry(if is_known { status } else { "others".into() }).or_default() += 1;
            }
        }
    }
}
