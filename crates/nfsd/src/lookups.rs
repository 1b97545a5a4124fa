//! Looks up what a host knows of its users and groups, without delaying other calls.
//!
//! The answer to a recent question is known at once. Otherwise the call that needs it waits, and no other call does:
//! threads of the program ask the host, a few questions at once, and take the waiting clients in turn. So a client with
//! very many questions, or a directory of users that does not answer, delays no caller whose answers are known; the new
//! questions of other clients wait only for their turn.
//!
//! The table is limited, and forgets an answer after a while. If the host cannot answer, the table keeps nothing: the
//! waiting calls learn that, and the next call asks again. If the host took long to fail, the table keeps the failure
//! for as long: otherwise a listing of a thousand files would wait a thousand times for the same owner. The connections
//! limit the calls that wait.

use rpcrdma_env::{Clock, Timestamp};
use rpcrdma_oncrpc::{ClientNetwork, gss::Work};
use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// How many answers are known at a time.
pub(crate) const MAX_KNOWN: usize = 4_096;
/// How long an answer of the host is used.
const LIFETIME: Duration = Duration::from_secs(300);
/// If the host took at least this long to fail, the failure is remembered for as long.
const SLOW: Duration = Duration::from_secs(1);
/// How often the log says that the host does not answer.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(60);
/// How many questions are asked at a time.
pub(crate) const AT_ONCE: usize = 2;

/// Asks the host, and may wait.
type Ask<K, V> = Box<dyn Fn(&K) -> io::Result<V> + Send + Sync>;

/// Answers to questions of one kind.
pub(crate) struct Lookups<K, V> {
    ask: Ask<K, V>,
    work: Arc<dyn Work>,
    clock: Arc<dyn Clock>,
    state: Mutex<State<K, V>>,
}

struct State<K, V> {
    known: HashMap<K, Known<V>>,
    /// The calls that wait for a question that the host has been asked or will be asked.
    waiting: HashMap<K, Vec<oneshot::Sender<V>>>,
    /// The clients whose questions wait, in turn, and those questions. A client stands here once.
    turns: VecDeque<(ClientNetwork, VecDeque<K>)>,
    asked: usize,
    /// When the log last said that the host does not answer.
    warned: Option<Timestamp>,
}

struct Known<V> {
    /// `None` if the host cannot answer.
    answer: Option<V>,
    until: Timestamp,
}

/// What is known now of a question.
pub(crate) enum Found<V> {
    Known(V),
    Later(oneshot::Receiver<V>),
}

impl<K, V> Lookups<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    /// Asks with `ask`, which may wait, on the threads of `work`.
    pub(crate) fn new(
        ask: impl Fn(&K) -> io::Result<V> + Send + Sync + 'static,
        work: Arc<dyn Work>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let (known, waiting, turns) = (HashMap::new(), HashMap::new(), VecDeque::new());
        let state = Mutex::new(State { known, waiting, turns, asked: 0, warned: None });
        Arc::new(Self { ask: Box::new(ask), work, clock, state })
    }

    /// How many answers are known, and for how many questions there are calls that wait.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let state = self.state();
        (state.known.len(), state.waiting.len())
    }

    fn state(&self) -> MutexGuard<'_, State<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a question of this client. The receiver gets nothing if the host has no answer.
    pub(crate) fn find(self: &Arc<Self>, key: K, client: ClientNetwork) -> Found<V> {
        let now = self.clock.now();
        let mut state = self.state();
        let (sender, receiver) = oneshot::channel();
        if let Some(known) = state.known.get(&key).filter(|known| now < known.until) {
            return known.answer.clone().map_or(Found::Later(receiver), Found::Known);
        }
        match state.waiting.get_mut(&key) {
            // Calls that no longer wait make room for new ones.
            Some(waiting) => {
                waiting.retain(|sender| !sender.is_closed());
                waiting.push(sender);
            }
            None => {
                state.waiting.insert(key.clone(), vec![sender]);
                match state.turns.iter_mut().find(|(other, _)| *other == client) {
                    Some((_, keys)) => keys.push_back(key),
                    None => state.turns.push_back((client, VecDeque::from([key]))),
                }
                self.go_on(state);
            }
        }
        Found::Later(receiver)
    }

    /// Asks the next questions, unless [`AT_ONCE`] are being asked.
    fn go_on(self: &Arc<Self>, mut state: MutexGuard<'_, State<K, V>>) {
        let mut next = Vec::new();
        while state.asked < AT_ONCE
            && let Some((client, mut keys)) = state.turns.pop_front()
        {
            let Some(key) = keys.pop_front() else { continue };
            if !keys.is_empty() {
                // NFS3-ID-d
                state.turns.push_back((client, keys));
            }
            state.asked += 1;
            next.push(key);
        }
        drop(state);
        for key in next {
            let asked = Asked { all: self.clone(), key: Some(key) };
            self.work.run(Box::new(move || asked.ask()));
        }
    }

    /// Keeps for a while what the host has answered, or that it cannot answer.
    fn told(self: &Arc<Self>, key: K, answer: Option<V>, lifetime: Duration) {
        let now = self.clock.now();
        let mut state = self.state();
        state.asked -= 1;
        state.known.retain(|_, known| now < known.until);
        if state.known.len() >= MAX_KNOWN
            && let Some(oldest) = state.known.iter().min_by_key(|(_, known)| known.until).map(|(key, _)| key.clone())
        {
            state.known.remove(&oldest);
        }
        let waiting = state.waiting.remove(&key).unwrap_or_default();
        state.known.insert(key, Known { answer: answer.clone(), until: now + lifetime });
        if let Some(answer) = answer {
            for waiting in waiting {
                let _ = waiting.send(answer.clone());
            }
        }
        self.go_on(state);
    }
}

impl<K, V> Lookups<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    /// The host has given no answer: the waiting calls stop waiting.
    fn untold(self: &Arc<Self>, key: &K) {
        let mut state = self.state();
        state.asked -= 1;
        state.waiting.remove(key);
        self.go_on(state);
    }

    fn warn(&self, error: &io::Error) {
        let now = self.clock.now();
        let warned = &mut self.state().warned;
        if warned.is_none_or(|warned| now.since(warned) >= BETWEEN_WARNINGS) {
            *warned = Some(now);
            tracing::warn!(%error, "cannot look up a user or group in this machine's databases");
        }
    }
}

/// A question to the host. Dropping it ends the question, also if the job has failed or no thread runs it any more.
struct Asked<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    all: Arc<Lookups<K, V>>,
    key: Option<K>,
}

impl<K, V> Asked<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    fn ask(mut self) {
        let Some(key) = &self.key else { return };
        let begin = self.all.clock.now();
        let (answer, lifetime) = match (self.all.ask)(key) {
            Ok(answer) => (Some(answer), LIFETIME),
            Err(error) => {
                self.all.warn(&error);
                (None, self.all.clock.now().since(begin).min(LIFETIME))
            }
        };
        if (answer.is_some() || lifetime >= SLOW)
            && let Some(key) = self.key.take()
        {
            self.all.told(key, answer, lifetime);
        }
    }
}

impl<K, V> Drop for Asked<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.all.untold(&key);
        }
    }
}

impl<K, V> Lookups<K, V> {
    /// From now on no answer of the host is used.
    #[cfg(test)]
    pub(crate) fn age(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.known.values_mut().for_each(|known| known.until = Timestamp::ZERO);
    }
}
