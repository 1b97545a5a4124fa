//! What a host knows of its users and groups, asked for where nothing else waits.
//!
//! What was asked for lately is known at once. Else the call that wants it waits, and no other does: the host is asked
//! on threads of the program's, a few times at once, in turn for each address that waits. So a client that asks for as
//! many things, or a directory of users that does not answer, keeps nobody waiting whose own are known, and nobody
//! else's new ones beyond their turn.
//!
//! What is known is bounded, and forgotten after a while. The calls that wait are bounded by their connections.

use rpcrdma_env::{Clock, Timestamp};
use rpcrdma_oncrpc::gss::Work;
use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// How many answers are known at a time.
pub(crate) const MAX_KNOWN: usize = 4_096;
/// For how long what the host has said is believed.
const LIFETIME: Duration = Duration::from_secs(300);
/// How many questions are asked at a time.
pub(crate) const AT_ONCE: usize = 2;

/// Answers to questions of one kind.
pub(crate) struct Lookups<K, V> {
    ask: Box<dyn Fn(&K) -> V + Send + Sync>,
    work: Arc<dyn Work>,
    clock: Arc<dyn Clock>,
    state: Mutex<State<K, V>>,
}

struct State<K, V> {
    known: HashMap<K, Known<V>>,
    /// Who waits for a question that is asked, or is to be.
    waiting: HashMap<K, Vec<oneshot::Sender<V>>>,
    /// The addresses whose questions are to be asked, in turn, and those questions. An address is there once.
    turns: VecDeque<(IpAddr, VecDeque<K>)>,
    asked: usize,
}

struct Known<V> {
    answer: V,
    until: Timestamp,
}

/// What is known now.
pub(crate) enum Found<V> {
    Known(V),
    Later(oneshot::Receiver<V>),
}

impl<K, V> Lookups<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    /// Asks by `ask`, which may wait, where `work` is done.
    pub(crate) fn new(
        ask: impl Fn(&K) -> V + Send + Sync + 'static,
        work: Arc<dyn Work>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let (known, waiting, turns) = (HashMap::new(), HashMap::new(), VecDeque::new());
        Arc::new(Self { ask: Box::new(ask), work, clock, state: Mutex::new(State { known, waiting, turns, asked: 0 }) })
    }

    /// How many answers are known, and how many are waited for.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let state = self.state();
        (state.known.len(), state.waiting.len())
    }

    fn state(&self) -> MutexGuard<'_, State<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a question of somebody at this address.
    pub(crate) fn find(self: &Arc<Self>, key: K, address: IpAddr) -> Found<V> {
        let now = self.clock.now();
        let mut state = self.state();
        if let Some(known) = state.known.get(&key).filter(|known| now < known.until) {
            return Found::Known(known.answer.clone());
        }
        let (sender, receiver) = oneshot::channel();
        match state.waiting.get_mut(&key) {
            // Who does not wait any more makes room for others.
            Some(waiting) => {
                waiting.retain(|sender| !sender.is_closed());
                waiting.push(sender);
            }
            None => {
                state.waiting.insert(key.clone(), vec![sender]);
                match state.turns.iter_mut().find(|(other, _)| *other == address) {
                    Some((_, keys)) => keys.push_back(key),
                    None => state.turns.push_back((address, VecDeque::from([key]))),
                }
                self.go_on(state);
            }
        }
        Found::Later(receiver)
    }

    /// Asks the next questions, if not enough are asked.
    fn go_on(self: &Arc<Self>, mut state: MutexGuard<'_, State<K, V>>) {
        let mut next = Vec::new();
        while state.asked < AT_ONCE
            && let Some((address, mut keys)) = state.turns.pop_front()
        {
            let Some(key) = keys.pop_front() else { continue };
            if !keys.is_empty() {
                state.turns.push_back((address, keys));
            }
            state.asked += 1;
            next.push(key);
        }
        drop(state);
        for key in next {
            let all = self.clone();
            self.work.run(Box::new(move || {
                let answer = (all.ask)(&key);
                all.told(key, answer);
            }));
        }
    }

    fn told(self: &Arc<Self>, key: K, answer: V) {
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
        state.known.insert(key, Known { answer: answer.clone(), until: now + LIFETIME });
        for waiting in waiting {
            let _ = waiting.send(answer.clone());
        }
        self.go_on(state);
    }
}

impl<K, V> Lookups<K, V> {
    /// From now on nothing is believed that the host has said.
    #[cfg(test)]
    pub(crate) fn age(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.known.values_mut().for_each(|known| known.until = Timestamp::ZERO);
    }
}
