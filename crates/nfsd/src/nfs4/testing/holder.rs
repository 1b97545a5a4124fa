//! A client that holds delegations: the server calls it over its session's back channel, and the client does what a
//! test says.
//!
//! ```text
//! let holder = reached(&server, &client);          binds another connection, over which the server calls from now on
//! holder.answer(Answers::Nothing)                  instead of taking each recall, without returning anything by itself
//! holder.lose(&server)                             that connection ends
//! holder.recalls()                                 the recalls that have come
//! ```

use super::{
    TestClient, TestServer,
    back::{Back, Heard, Said, outcome},
    only,
};
use crate::testing;
use rpcrdma_nfs::v4::{
    Args, FileAttributes, Status, Value,
    callback::{self, CbGetAttrOk, CbRecall, Outcome, ReferringCalls},
    ops::{BindConnToSession, ClientDirection},
};
use rpcrdma_oncrpc::TransportError;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// How the client answers calls.
#[derive(Clone, Debug)]
pub(in crate::nfs4) enum Answers {
    /// It does what the call asks; it does not answer CB_GETATTR.
    Ok,
    /// It answers CB_GETATTR with these attributes.
    Attributes {
        /// The change number.
        change: u64,
        /// The size.
        size: u64,
    },
    /// The operation fails.
    Status(Status),
    /// CB_SEQUENCE fails: it executes nothing.
    Refused(Status),
    /// The client's transport gives up the call.
    Lost,
    /// It answers only when a test lets it.
    Nothing,
    /// It is gone: it answers nothing, not even probes.
    Away,
}

/// What the client's end of the connection keeps.
struct Kept {
    answers: Answers,
    calls: Vec<(callback::Args, Vec<ReferringCalls>)>,
}

/// A client that the server can call: its answers, and the calls that it got.
pub(in crate::nfs4) struct Reached {
    back: Arc<Back>,
    rpc: testing::Client,
    kept: Arc<Mutex<Kept>>,
}

/// Makes a client that the server can call. It accepts each recall, and returns nothing by itself.
pub(in crate::nfs4) fn reached(server: &TestServer, client: &TestClient) -> Arc<Reached> {
    let back = Back::new();
    let kept = Arc::new(Mutex::new(Kept { answers: Answers::Ok, calls: Vec::new() }));
    let keeps = kept.clone();
    back.answer_by(move |heard| keeps.lock().unwrap().hear(heard));
    let rpc = server.connection_over(&back);
    let bind = BindConnToSession { session: client.session, direction: ClientDirection::BackOrBoth, rdma_mode: false };
    let mut results = client.send_over(&rpc, vec![Args::BindConnToSession(bind)]).results;
    only!(results.remove(0), BindConnToSession).unwrap();
    server.drive();
    Arc::new(Reached { back, rpc, kept })
}

impl Kept {
    fn hear(&mut self, heard: &Heard) -> Said {
        if matches!(self.answers, Answers::Away) {
            return Said::Nothing;
        }
        // CB_NULL, a probe, or a question about a slot in doubt.
        let Some(args) = heard.ops().first() else {
            return if heard.args.is_some() { Said::Results(heard.with(Vec::new())) } else { Said::Well };
        };
        assert_eq!(heard.ops().len(), 1, "one operation at a time: {heard:?}");
        self.calls.push((args.clone(), heard.sequence().referring.to_vec()));
        answered(heard, args, &self.answers)
    }
}

fn answered(heard: &Heard, args: &callback::Args, answers: &Answers) -> Said {
    let attributes = |values: &[Value]| {
        let attributes = FileAttributes::of(values);
        Outcome::GetAttr(Ok(CbGetAttrOk { attributes }))
    };
    let one = match (answers, args) {
        (Answers::Nothing | Answers::Away, _) => return Said::Nothing,
        (Answers::Lost, _) => {
            let (server, after) = (([127, 0, 0, 1], 700).into(), Duration::from_secs(1));
            return Said::Failed(TransportError::NotAnswered { server, after });
        }
        (Answers::Refused(status), _) => return Said::Results(heard.refused(*status)),
        (Answers::Status(status), args) => outcome(args.op(), *status),
        (Answers::Attributes { change, size }, callback::Args::GetAttr(_)) => {
            attributes(&[Value::Change(*change), Value::Size(*size)])
        }
        (_, callback::Args::GetAttr(_)) => attributes(&[]),
        (_, args) => {
            assert!(matches!(args, callback::Args::Recall(_)), "{args:?}");
            outcome(args.op(), Status::OK)
        }
    };
    Said::Results(heard.with(vec![one]))
}

impl Reached {
    /// From now on it answers like this.
    pub(in crate::nfs4) fn answer(&self, answers: Answers) {
        self.kept.lock().unwrap().answers = answers;
    }

    /// It answers its unanswered calls, as an honest client does.
    pub(in crate::nfs4) fn let_go(&self) {
        self.back.let_go(|heard| match heard.ops().first() {
            Some(args) => answered(heard, args, &Answers::Ok),
            None => Said::Well,
        });
    }

    /// How many calls it has not answered.
    pub(in crate::nfs4) fn unanswered(&self) -> usize {
        self.back.held()
    }

    /// Ends its connection: the server cannot call it any more.
    pub(in crate::nfs4) fn lose(&self, server: &TestServer) {
        server.end(&self.rpc, &self.back);
    }

    /// How often the server has called it.
    pub(in crate::nfs4) fn calls(&self) -> usize {
        self.kept.lock().unwrap().calls.len()
    }

    /// The recalls so far, with the calls to which they refer.
    pub(in crate::nfs4) fn recalls(&self) -> Vec<(CbRecall, Vec<ReferringCalls>)> {
        let kept = self.kept.lock().unwrap();
        let recall = |(args, referring): &(callback::Args, Vec<ReferringCalls>)| match args {
            callback::Args::Recall(recall) => Some((recall.clone(), referring.clone())),
            _ => None,
        };
        kept.calls.iter().filter_map(recall).collect()
    }
}
