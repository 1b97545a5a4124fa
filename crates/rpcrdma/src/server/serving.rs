//! The serving threads, as the rest of the server sees them: whether they have ended, and how.

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::sync::{Mutex, oneshot};

/// All serving threads.
pub(super) struct Serving(Mutex<State>);

struct State {
    /// Completes for each thread when it has ended, with an error if it has panicked.
    threads: FuturesUnordered<oneshot::Receiver<()>>,
    /// How the first one has ended.
    first: Option<&'static str>,
}

impl State {
    /// The end of the next thread that ends; `None` if all have ended.
    async fn next(&mut self) -> Option<&'static str> {
        let ended = self.threads.next().await?;
        let how = if ended.is_ok() { "it has stopped" } else { "it has panicked" };
        self.first.get_or_insert(how);
        Some(how)
    }
}

impl Serving {
    pub(super) fn new(threads: impl IntoIterator<Item = oneshot::Receiver<()>>) -> Self {
        Self(Mutex::new(State { threads: threads.into_iter().collect(), first: None }))
    }

    /// Completes when the first of the threads has ended, and says how.
    pub(super) async fn first_end(&self) -> &'static str {
        let mut state = self.0.lock().await;
        match state.first {
            Some(how) => how,
            None => state.next().await.unwrap_or("no thread is left"),
        }
    }

    /// Completes when all threads have ended.
    pub(super) async fn all_ended(&self) {
        let mut state = self.0.lock().await;
        while state.next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn the_first_thread_that_ends_is_noticed_whichever_it_is() {
        for first in 0..3 {
            let (mut alive, threads): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
            let serving = Serving::new(threads);
            assert_eq!(serving.first_end().now_or_never(), None);
            drop(alive.remove(first));
            assert_eq!(serving.first_end().now_or_never(), Some("it has panicked"));
            assert_eq!(serving.all_ended().now_or_never(), None);
            alive.into_iter().for_each(|thread| thread.send(()).unwrap());
            assert_eq!(serving.all_ended().now_or_never(), Some(()));
            assert_eq!(serving.first_end().now_or_never(), Some("it has panicked"), "as at the first look");
        }
    }
}
