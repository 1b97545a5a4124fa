//! Shows the user that a server does not answer: since when, and how long the command waits for it.
//!
//! Every connection of a command is watched, from the first attempt on. On a terminal a line is drawn and drawn again,
//! in a copy's progress line if there is one; elsewhere a line is written after [`PATIENCE`], again after twice the
//! time each, and when the server answers. A thread draws the line, so that a busy command does not delay it; the
//! connection's driver takes it away, before its caller gets the answer.

use crate::failure;
use indicatif::{ProgressBar, ProgressStyle};
use rpcrdma::client::{self, Attempt};
use rpcrdma_env::{Clock, Env};
use rpcrdma_oncrpc::{ClientTransport, Silence, Waiting, outage::DEFAULT_FIRST_SIGN};
use rpcrdma_transport::{Event, Observer};
use std::{
    io::IsTerminal,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// Nothing is silent for longer than this while a server does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the thread looks.
const LOOK: Duration = Duration::from_millis(200);

/// Watches the connections of a command. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Shared>);

#[derive(Default)]
struct Shared {
    watched: Mutex<Watching>,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Watching {
    servers: Vec<Watched>,
    is_looking: bool,
    is_quiet: bool,
}

struct Watched {
    server: SocketAddr,
    silence: Weak<Silence>,
    clock: Arc<dyn Clock>,
}

/// A connection that is being made.
struct Connecting(Arc<Silence>);

impl Attempt for Connecting {
    /// An observer that sees when a server which says nothing is tried again, for which it then has longer.
    fn observed(&self, next: Arc<dyn Observer>) -> Arc<dyn Observer> {
        Arc::new(TriedAgain { silence: Arc::downgrade(&self.0), next })
    }

    /// The connection is established.
    fn done(self: Box<Self>) {
        self.0.set(None, true);
    }
}

struct TriedAgain {
    silence: Weak<Silence>,
    next: Arc<dyn Observer>,
}

impl Observer for TriedAgain {
    fn event(&self, peer: SocketAddr, event: &Event) {
        // Gone once the connection stands: from then on the transport itself tells.
        if matches!(event, Event::Reconnecting { .. })
            && let Some(silence) = self.silence.upgrade()
            && let Some(Waiting { since, .. }) = silence.waiting()
        {
            silence.set(Some(Waiting { since, alive: None, until: since + DEFAULT_FIRST_SIGN }), false);
        }
        self.next.event(peer, event);
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.set(None, false);
    }
}

impl Watch {
    /// Sets whether to show nothing.
    pub(crate) fn set_quiet(&self, is_quiet: bool) {
        lock(&self.0.watched).is_quiet = is_quiet;
    }

    /// Puts the line before a copy's progress.
    pub(crate) fn share(&self, bar: ProgressBar) {
        lock(&self.0.line).copying = Some(bar);
    }

    fn watch(&self, server: SocketAddr, silence: &Arc<Silence>, env: &Env) {
        let mut watching = lock(&self.0.watched);
        watching.servers.retain(|watched| watched.silence.strong_count() > 0);
        watching.servers.push(Watched { server, silence: Arc::downgrade(silence), clock: env.clock.clone() });
        if !watching.is_looking {
            let shared = Arc::downgrade(&self.0);
            // Without the thread nothing is shown, and the command does its work.
            let looks = std::thread::Builder::new().name("waiting".into()).spawn(move || look_on(&shared));
            watching.is_looking = looks.is_ok();
        }
    }
}

impl client::Watch for Watch {
    fn connecting(&self, server: SocketAddr, env: &Env, limit: Duration) -> Box<dyn Attempt> {
        let silence = Arc::<Silence>::default();
        let since = env.clock.now();
        silence.set(Some(Waiting { since, alive: None, until: since + limit }), false);
        self.watch(server, &silence, env);
        Box::new(Connecting(silence))
    }

    fn connected(&self, transport: &dyn ClientTransport, env: &Env) {
        if let Some(silence) = transport.silence() {
            self.watch(transport.server(), &silence, env);
        }
    }

    fn warning(&self, text: &str) {
        failure::warning_once(text);
    }
}

fn look_on(shared: &Weak<Shared>) {
    loop {
        std::thread::sleep(LOOK);
        let Some(shared) = shared.upgrade() else { return };
        let longest = lock(&shared.watched).longest();
        if let Some(longest) = longest {
            longest.show(&shared);
        }
    }
}

/// A wait that should be shown.
struct Longest {
    server: SocketAddr,
    age: Duration,
    silence: Arc<Silence>,
    waiting: Waiting,
    clock: Arc<dyn Clock>,
}

impl Watching {
    /// The server that has been silent for longest, if it is worth telling.
    fn longest(&self) -> Option<Longest> {
        let waits = self.servers.iter().filter(|_| !self.is_quiet).filter_map(|watched| {
            let silence = watched.silence.upgrade()?;
            let waiting = silence.waiting()?;
            let clock = watched.clock.clone();
            let age = clock.now().since(waiting.since);
            (age >= PATIENCE).then_some(Longest { server: watched.server, age, silence, waiting, clock })
        });
        waits.max_by_key(|wait| wait.age)
    }
}

impl Longest {
    fn show(self, shared: &Arc<Shared>) {
        let Self { server, age, silence, waiting, clock } = self;
        // Held until the line stands: the code that takes it away waits for that.
        let mut line = lock(&shared.line);
        let over = Arc::downgrade(shared);
        let since = waiting.since;
        let when_over = move |heard: bool| {
            if let Some(shared) = over.upgrade() {
                let answered = heard.then(|| clock.now().since(since));
                lock(&shared.line).clear(server, answered);
            }
        };
        if silence.when_over(since, when_over) {
            line.show(age, &text(server, age, &waiting));
        }
    }
}

/// The place where a wait is shown.
#[derive(Default)]
struct Line {
    /// The progress of a copy.
    copying: Option<ProgressBar>,
    /// A line of its own, drawn now.
    own: Option<ProgressBar>,
    /// Without a terminal: how old the wait was when it was last written.
    told: Option<Duration>,
}

impl Line {
    fn show(&mut self, age: Duration, text: &str) {
        if let Some(bar) = &self.copying {
            bar.set_prefix(format!("{text}; "));
        } else if std::io::stderr().is_terminal() {
            self.own.get_or_insert_with(spinner).set_message(text.to_owned());
        } else if is_due(self.told, age) {
            self.told = Some(age);
            failure::write(&failure::warning_line(text));
        }
    }

    fn clear(&mut self, server: SocketAddr, answered: Option<Duration>) {
        if let Some(bar) = &self.copying {
            bar.set_prefix("");
        }
        if let Some(bar) = self.own.take() {
            bar.finish_and_clear();
        }
        if let (Some(_), Some(after)) = (self.told.take(), answered) {
            failure::write(&failure::warning_line(&format!("{server} answers again after {}", span(after))));
        }
    }
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

/// A server that answers health checks is slow, and the command does not give it up.
fn text(server: SocketAddr, age: Duration, waiting: &Waiting) -> String {
    match waiting.alive {
        Some(_) => format!("{server} is slow: it answers health checks, and nothing else since {}", span(age)),
        None => format!(
            "waiting for {server} since {}, giving up at {}",
            span(age),
            span(waiting.until.since(waiting.since))
        ),
    }
}

/// Whether to write about a wait of this age, which was last written at another: each time takes twice as long.
fn is_due(told: Option<Duration>, age: Duration) -> bool {
    told.is_none_or(|told| age >= told * 2)
}

/// A time in whole seconds, to the nearest, and minutes where there are some.
fn span(time: Duration) -> String {
    let seconds = (time + Duration::from_millis(500)).as_secs();
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::Timestamp;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_wait_is_told_with_its_end() {
        let server = ([10, 0, 0, 1], 20049).into();
        let since = Timestamp::from_nanos(7);
        let mut waiting = Waiting { since, alive: None, until: since + 120 * SECOND };
        let told = text(server, 20 * SECOND, &waiting);
        assert_eq!(told, "waiting for 10.0.0.1:20049 since 20 s, giving up at 2 min");
        waiting.alive = Some(since + 21 * SECOND);
        let told = text(server, 40 * SECOND, &waiting);
        assert_eq!(told, "10.0.0.1:20049 is slow: it answers health checks, and nothing else since 40 s");
        assert_eq!(span(Duration::from_millis(9_990)), "10 s");
        assert_eq!(span(Duration::from_millis(59_499)), "59 s");
        assert_eq!([0, 59, 60, 190].map(|seconds| span(seconds * SECOND)), ["0 s", "59 s", "1 min", "3 min 10 s"]);
    }

    #[test]
    fn lines_follow_each_other_at_twice_the_time() {
        let mut told = None;
        let mut ages = Vec::new();
        for age in 5..=100 {
            if is_due(told, age * SECOND) {
                told = Some(age * SECOND);
                ages.push(age);
            }
        }
        assert_eq!(ages, [5, 10, 20, 40, 80]);
    }

    #[test]
    fn a_copys_progress_line_says_it_until_the_server_answers() {
        let bar = ProgressBar::hidden();
        let mut line = Line { copying: Some(bar.clone()), ..Line::default() };
        let server = ([10, 0, 0, 1], 20049).into();
        let since = Timestamp::from_nanos(7);
        let waiting = Waiting { since, alive: None, until: since + 120 * SECOND };
        line.show(5 * SECOND, &text(server, 5 * SECOND, &waiting));
        assert_eq!(bar.prefix(), "waiting for 10.0.0.1:20049 since 5 s, giving up at 2 min; ");
        line.clear(server, Some(8 * SECOND));
        assert_eq!(bar.prefix(), "");
    }
}
