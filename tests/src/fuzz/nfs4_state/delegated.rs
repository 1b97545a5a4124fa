//! Delegations of one file: grants, waits, recalls, returns, and delegations that are taken away because they were not
//! returned. The server decides whether it delegates a file. But it may delegate only if no other client is in the way,
//! and must keep others out later.

use super::{
    Run,
    model::{CLIENTS, Delegated},
    session::only,
};
use crate::fuzz::mint::Mint;
use rpcrdma_nfs::v4::{
    Args, List, Outcome, Owner, OwnerName, StateId, StateIdOther, Status, callback,
    ops::{self, Delegation},
};
use rpcrdma_xdr::ItemData;

/// The file's name.
pub(super) const FILE: &str = "5";
/// A stateid that the server has given to no client.
const UNKNOWN: StateId = StateId { sequence: 1, other: StateIdOther([7; 12]) };

impl Run {
    pub(super) fn of_delegations(&mut self, client: usize, mint: &mut Mint<'_>) {
        match mint.below(8) {
            0..=3 => self.open_delegated(client, if mint.below(2) == 0 { 1 } else { 3 }),
            4 => self.give_back(client),
            5 | 6 => self.use_delegated(client, mint.below(2) == 0),
            _ => self.pass([2, 5, 11][mint.below(3)]),
        }
    }

    fn at_delegated(&mut self, client: usize, op: Args) -> Option<Outcome<ItemData>> {
        let put = Args::PutFh(ops::PutFh { file: self.delegated_file.clone() });
        self.call(client, 0, true, vec![put, op])?.pop()
    }

    /// The clients whose delegations are in the way of a client's use.
    fn in_the_way(&self, client: usize, writes: bool) -> Vec<usize> {
        let excludes = |other: &usize| {
            let known = self.model.clients[*other].as_ref();
            *other != client && known.and_then(|known| known.delegation).is_some_and(|held| held.writes || writes)
        };
        (0..CLIENTS).filter(excludes).collect()
    }

    /// Takes the calls that a client has received: they may only recall what it holds. Returns how many came. Call this
    /// before the client can lose its delegation: if the server could not call a client, it calls later, perhaps long
    /// after another wanted the file.
    pub(super) fn hear(&mut self, holder: usize) -> usize {
        let heard = self.world.heard(holder);
        let held = self.model.clients[holder].as_ref().and_then(|known| known.delegation);
        for call in &heard {
            let callback::Args::Recall(recall) = call else { panic!("{call:?}") };
            assert_eq!((Some(recall.state), &recall.file), (held.map(|held| held.id), &self.delegated_file));
            self.saw("CB_RECALL", Status::OK);
        }
        self.renew(holder);
        heard.len()
    }

    /// The answer to a call of the server renews a client's lease (RFC 8881 section 20.9.3).
    pub(super) fn renew(&mut self, client: usize) {
        if let (Some(known), Some(at)) = (&mut self.model.clients[client], self.world.answered(client)) {
            known.renewed = known.renewed.max(at);
        }
    }

    /// Updates the model for the holders in the way of a use that began at `since` and got this status. Returns whether
    /// the use was done.
    fn recalled(&mut self, what: &'static str, since: u64, holders: &[usize], status: Status) -> bool {
        self.world.drive();
        let live = holders.iter().any(|holder| self.model.is_live(*holder));
        assert!(!live || status == Status::DELAY, "{what}: {status} though another has it delegated");
        assert!(!holders.is_empty() || status == Status::OK, "{what}: {status} though nobody is in the way");
        self.saw(what, status);
        for holder in 0..CLIENTS {
            let told = self.hear(holder);
            let known = self.model.clients[holder].as_ref();
            let (held, has_session) =
                (known.and_then(|known| known.delegation), known.is_some_and(|known| known.session.is_some()));
            let is_first = holders.contains(&holder) && held.is_some_and(|held| held.recalled.is_none());
            if is_first && has_session && self.model.is_live(holder) {
                assert_eq!(told, 1, "{what}: its holder is told once");
            }
            if let (true, Some(held)) =
                (is_first, self.model.clients[holder].as_mut().and_then(|known| known.delegation.as_mut()))
            {
                held.recalled = Some(since);
            }
        }
        let dead: Vec<_> = holders.iter().copied().filter(|holder| !self.model.is_live(*holder)).collect();
        if self.world.has_waited() {
            self.world.round_up();
            (0..CLIENTS).for_each(|holder| _ = self.hear(holder));
            self.model.passed(self.world.now());
            self.zero.passed(&mut self.model);
        }
        dead.into_iter().for_each(|holder| self.ask_for(holder));
        status == Status::OK
    }

    /// A holder whose lease was over may have lost its delegation or not: asks the server.
    fn ask_for(&mut self, holder: usize) {
        let Some(known) = &self.model.clients[holder] else { return };
        let Some(held) = known.delegation else { return };
        if known.session.is_none() {
            self.greet(holder, false);
        }
        let test = Args::TestStateId(ops::TestStateId { states: List(vec![held.id]) });
        let mut told = self.call_telling(holder, (0, false, false), vec![test]).expect("it has a session");
        match only!(told, TestStateId).expect("it is told").statuses[0] {
            Status::OK => {}
            Status::EXPIRED => self.model.lose_delegation(holder),
            other => panic!("{other} of a delegation that was held"),
        }
    }

    fn open_delegated(&mut self, client: usize, access: u32) {
        let (wanted, since) = (self.model.fresh(client), self.model.now);
        let holders = self.in_the_way(client, access & 2 != 0);
        if wanted != Status::OK && !holders.is_empty() {
            return;
        }
        let owner = Owner { client: rpcrdma_nfs::v4::ClientId(0), name: OwnerName::from("d") };
        let (how, claim) = (ops::OpenHow::NoCreate, ops::Claim::Handle);
        let open = ops::Open { sequence: 0, access, deny: 0, owner, how, claim };
        let Some(outcome) = self.at_delegated(client, Args::Open(Box::new(open))) else { return };
        if wanted != Status::OK {
            return self.is("OPEN to be delegated", outcome.status(), wanted);
        }
        let status = outcome.status();
        if let Outcome::Open(Ok(opened)) = outcome {
            let granted = match opened.delegation {
                Delegation::None => None,
                Delegation::Read(read) => Some((read.state, false)),
                Delegation::Write(write) => Some((write.state, true)),
                other => panic!("{other:?}"),
            };
            // Closes the open at once, so that it is in no other client's way.
            let close = Args::Close(ops::Close { sequence: 0, state: opened.state });
            let closed = self.at_delegated(client, close).expect("it has a session");
            assert_eq!(closed.status(), Status::OK, "CLOSE");
            if let Some((id, writes)) = granted {
                let others = self.in_the_way(client, writes);
                let others: Vec<_> = others.into_iter().filter(|other| self.model.is_live(*other)).collect();
                assert!(others.is_empty(), "delegated to another as well");
                let known = self.model.known(client);
                assert!(known.delegation.is_none(), "it has one");
                known.delegation = Some(Delegated { id, writes, recalled: None });
                self.saw(if writes { "delegated to write" } else { "delegated to read" }, Status::OK);
            }
        }
        self.recalled("OPEN to be delegated", since, &holders, status);
    }

    /// READ or WRITE without an open.
    fn use_delegated(&mut self, client: usize, writes: bool) {
        if self.model.is_grace {
            return;
        }
        let (since, holders) = (self.model.now, self.in_the_way(client, writes));
        let state = StateId::ANONYMOUS;
        let op = if writes {
            let (stability, data) = (ops::Stability::FileSync, bytes::Bytes::from_static(b"d"));
            Args::Write(ops::Write { state, offset: 0, stability, data })
        } else {
            Args::Read(ops::Read { state, offset: 0, count: 1 })
        };
        let Some(outcome) = self.at_delegated(client, op) else { return };
        self.recalled("use of what is delegated", since, &holders, outcome.status());
    }

    fn give_back(&mut self, client: usize) {
        let known = self.model.clients[client].as_ref();
        let (held, revoked) =
            (known.and_then(|known| known.delegation), known.and_then(|known| known.not_returned.first().copied()));
        let (state, wanted) = match (held, revoked) {
            (Some(held), _) => (held.id, Status::OK),
            (None, Some(other)) => (StateId { sequence: 1, other: StateIdOther(other) }, Status::DELEG_REVOKED),
            (None, None) => (UNKNOWN, Status::BAD_STATEID),
        };
        let give_back = Args::DelegReturn(ops::DelegReturn { state });
        let Some(outcome) = self.at_delegated(client, give_back) else { return };
        self.is("DELEGRETURN", outcome.status(), wanted);
        self.model.known(client).delegation = None;
    }
}
