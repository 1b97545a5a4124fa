//! A single-threaded executor that lets the seed choose which ready task runs next.

use rpcrdma_env::{BoxFuture, Random, SeededRandom};
use std::{
    collections::BTreeMap,
    future::Future,
    panic::Location,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

/// Locks, also after a panic in another thread: the test reports that panic anyway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of the future that `block_on` was given.
pub(crate) const MAIN: u64 = 0;

/// Tasks that can run. The queue has its own lock, so that a task can be woken while the world is locked.
#[derive(Default)]
pub(crate) struct ReadyQueue {
    ids: Mutex<Vec<u64>>,
}

impl ReadyQueue {
    fn push(&self, id: u64) {
        let mut ids = lock(&self.ids);
        if !ids.contains(&id) {
            ids.push(id);
        }
    }

    /// Draws one of the tasks that can run.
    fn draw(&self, random: &SeededRandom) -> Option<u64> {
        let mut ids = lock(&self.ids);
        if ids.is_empty() {
            return None;
        }
        let index = random.below(ids.len() as u64) as usize;
        Some(ids.swap_remove(index))
    }
}

struct TaskWaker {
    id: u64,
    ready: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.id);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.push(self.id);
    }
}

struct Entry {
    /// Absent while it is being polled.
    future: Option<BoxFuture<'static, ()>>,
    waker: Waker,
    origin: &'static Location<'static>,
}

/// The tasks of a world.
pub(crate) struct Executor {
    tasks: Mutex<BTreeMap<u64, Entry>>,
    next: Mutex<u64>,
    ready: Arc<ReadyQueue>,
    order: SeededRandom,
}

impl Executor {
    pub(crate) fn new(order: SeededRandom) -> Self {
        Self { tasks: Mutex::default(), next: Mutex::new(MAIN + 1), ready: Arc::default(), order }
    }

    pub(crate) fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        origin: &'static Location<'static>,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        let slot = Arc::new(Mutex::new(Slot { value: None, waker: None, over: false }));
        let result = slot.clone();
        let future = Box::pin(async move {
            let value = future.await;
            let mut slot = lock(&result);
            slot.value = Some(value);
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        });
        let id = {
            let mut next = lock(&self.next);
            let id = *next;
            *next += 1;
            id
        };
        lock(&self.tasks).insert(id, Entry { future: Some(future), waker: self.waker(id), origin });
        self.ready.push(id);
        Task { id, slot, executor: self.clone() }
    }

    pub(crate) fn waker(&self, id: u64) -> Waker {
        Waker::from(Arc::new(TaskWaker { id, ready: self.ready.clone() }))
    }

    pub(crate) fn make_ready(&self, id: u64) {
        self.ready.push(id);
    }

    pub(crate) fn draw(&self) -> Option<u64> {
        self.ready.draw(&self.order)
    }

    /// Polls a task, unless it has ended or was aborted.
    pub(crate) fn poll(&self, id: u64) {
        let taken = lock(&self.tasks).get_mut(&id).and_then(|e| Some((e.future.take()?, e.waker.clone())));
        let Some((mut future, waker)) = taken else { return };
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut tasks = lock(&self.tasks);
        if done {
            tasks.remove(&id);
        } else if let Some(entry) = tasks.get_mut(&id) {
            entry.future = Some(future);
            return;
        }
        drop(tasks);
        // Dropping a future may abort or spawn other tasks, so the lock must be free.
        drop(future);
    }

    /// The places in the source where the waiting tasks were spawned.
    pub(crate) fn waiting(&self) -> Vec<String> {
        lock(&self.tasks).iter().map(|(id, e)| format!("task {id}, spawned at {}", e.origin)).collect()
    }

    /// Drops all tasks.
    pub(crate) fn clear(&self) {
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        drop(tasks);
    }

    fn abort(&self, id: u64) {
        let entry = lock(&self.tasks).remove(&id);
        drop(entry);
    }
}

struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
    over: bool,
}

/// A task of a world. Awaiting it gives its result; dropping it lets it run on.
pub struct Task<T> {
    id: u64,
    slot: Arc<Mutex<Slot<T>>>,
    executor: Arc<Executor>,
}

impl<T> Task<T> {
    /// Ends the task at once by dropping its future. Awaiting it afterwards is a bug and panics.
    pub fn abort(&self) {
        self.executor.abort(self.id);
        let waker = {
            let mut slot = lock(&self.slot);
            slot.over = slot.value.is_none();
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the task has ended and its result is available.
    pub fn is_finished(&self) -> bool {
        lock(&self.slot).value.is_some()
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut slot = lock(&self.slot);
        if let Some(value) = slot.value.take() {
            return Poll::Ready(value);
        }
        let over = slot.over;
        slot.waker = Some(cx.waker().clone());
        drop(slot);
        assert!(!over, "task {} was aborted and is awaited", self.id);
        Poll::Pending
    }
}

impl<T> std::fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("id", &self.id).finish_non_exhaustive()
    }
}
