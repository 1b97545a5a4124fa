//! Clients that are called in tests: what stands in for the back channel, and does with a recall what a test says.

use super::NoAnswer;
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::v4::{
    ClientId, FileAttributes, Status, Value,
    callback::{Args, CbGetAttrOk, CbRecall, Outcome, ReferringCalls},
};
use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
};

/// A client as it is called.
pub(in crate::nfs4) trait Holder: Send + Sync {
    /// Whether it can be called.
    fn is_reached(&self) -> bool {
        true
    }

    /// A call to it.
    fn call(
        &self,
        ops: Vec<Args>,
        referring: Vec<ReferringCalls>,
    ) -> BoxFuture<'static, Result<Vec<Outcome>, NoAnswer>>;
}

/// Those of a server.
#[derive(Default)]
pub(in crate::nfs4) struct Holders(Mutex<HashMap<ClientId, Arc<dyn Holder>>>);

impl Holders {
    pub(in crate::nfs4) fn set(&self, client: ClientId, holder: Arc<dyn Holder>) {
        self.0.lock().unwrap().insert(client, holder);
    }

    pub(in crate::nfs4) fn of(&self, client: ClientId) -> Option<Arc<dyn Holder>> {
        self.0.lock().unwrap().get(&client).cloned()
    }
}

/// What a client that is called answers.
#[derive(Clone, Debug)]
pub(in crate::nfs4) enum Answers {
    /// It does what is asked; to CB_GETATTR it says nothing.
    Ok,
    /// What CB_GETATTR asks.
    Attributes {
        /// The change number.
        change: u64,
        /// The size.
        size: u64,
    },
    /// It refuses.
    Status(Status),
    /// Its answer never comes, and that is known.
    Error(NoAnswer),
    /// Its answer never comes.
    Nothing,
}

/// A client that is called: what it answers, and what it was called for.
pub(in crate::nfs4) struct Reached {
    answers: Mutex<Answers>,
    is_lost: AtomicBool,
    calls: Mutex<Vec<(Args, Vec<ReferringCalls>)>>,
    /// Calls that wait for an answer now, and the most that ever did.
    under_way: Arc<(AtomicUsize, AtomicUsize)>,
    /// Those who wait for it to answer at all, if it does not.
    held_back: Arc<Mutex<Option<Vec<Waker>>>>,
}

impl Default for Reached {
    fn default() -> Self {
        Self {
            answers: Mutex::new(Answers::Ok),
            is_lost: AtomicBool::new(false),
            calls: Mutex::default(),
            under_way: Arc::default(),
            held_back: Arc::default(),
        }
    }
}

impl Reached {
    pub(in crate::nfs4) fn answer(&self, answers: Answers) {
        self.is_lost.store(false, Ordering::SeqCst);
        *self.answers.lock().unwrap() = answers;
    }

    /// It answers nothing, until it is let go.
    pub(in crate::nfs4) fn hold_back(&self) {
        *self.held_back.lock().unwrap() = Some(Vec::new());
    }

    /// It answers all that it was called for, and goes on answering.
    pub(in crate::nfs4) fn let_go(&self) {
        let waiting = self.held_back.lock().unwrap().take();
        waiting.into_iter().flatten().for_each(Waker::wake);
    }

    /// It cannot be called any more.
    pub(in crate::nfs4) fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
        *self.answers.lock().unwrap() = Answers::Error(NoAnswer::NoPath);
    }

    pub(in crate::nfs4) fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// The recalls so far, with the calls that they refer to.
    pub(in crate::nfs4) fn recalls(&self) -> Vec<(CbRecall, Vec<ReferringCalls>)> {
        let calls = self.calls.lock().unwrap();
        let recall = |(args, referring): &(Args, Vec<ReferringCalls>)| match args {
            Args::Recall(recall) => Some((recall.clone(), referring.clone())),
            _ => None,
        };
        calls.iter().filter_map(recall).collect()
    }

    /// The most calls that were under way at a time.
    pub(in crate::nfs4) fn most(&self) -> usize {
        self.under_way.1.load(Ordering::SeqCst)
    }
}

impl Holder for Reached {
    fn is_reached(&self) -> bool {
        !self.is_lost.load(Ordering::SeqCst)
    }

    fn call(
        &self,
        ops: Vec<Args>,
        referring: Vec<ReferringCalls>,
    ) -> BoxFuture<'static, Result<Vec<Outcome>, NoAnswer>> {
        let [args] = <[Args; 1]>::try_from(ops).unwrap();
        let answers = self.answers.lock().unwrap().clone();
        let outcome = match (answers, &args) {
            (Answers::Nothing, _) => None,
            (Answers::Error(error), _) => Some(Err(error)),
            (Answers::Status(status), args) => Some(Ok(vec![Outcome::failed(args.op(), status)])),
            (Answers::Attributes { change, size }, Args::GetAttr(_)) => {
                let attributes = FileAttributes::of(&[Value::Change(change), Value::Size(size)]);
                Some(Ok(vec![Outcome::GetAttr(Ok(CbGetAttrOk { attributes }))]))
            }
            (_, Args::GetAttr(_)) => Some(Ok(Vec::new())),
            (_, args) => {
                assert!(matches!(args, Args::Recall(_)), "{args:?}");
                Some(Ok(vec![Outcome::Recall(Ok(()))]))
            }
        };
        self.calls.lock().unwrap().push((args, referring));
        let (under_way, held_back) = (self.under_way.clone(), self.held_back.clone());
        let now = under_way.0.fetch_add(1, Ordering::SeqCst) + 1;
        under_way.1.fetch_max(now, Ordering::SeqCst);
        Box::pin(poll_fn(move |cx| {
            if let Some(waiting) = &mut *held_back.lock().unwrap() {
                waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
            match outcome.clone() {
                Some(outcome) => {
                    under_way.0.fetch_sub(1, Ordering::SeqCst);
                    Poll::Ready(outcome)
                }
                None => Poll::Pending,
            }
        }))
    }
}
