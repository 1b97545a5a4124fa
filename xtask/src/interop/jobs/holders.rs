//! Processes in two guests lock the same files, as the host commands (`xtask locks --commands`); the steps below say
//! what each must get while the other holds something.

use crate::interop::{context::Context, guest::Guest};
use anyhow::ensure;
use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

/// The words that the host's commands to a guest consist of; for
/// [`GuestOptions::before`](crate::interop::guest::GuestOptions::before).
pub(super) const WORDS: &str = include_str!("../../../interop/guest/holders.sh");

/// The guests in the order in which they boot.
pub(super) const NAMES: [&str; 2] = ["left", "right"];
pub(super) const LEFT: usize = 0;
pub(super) const RIGHT: usize = 1;

/// A guest, a command to its holder, and the answer that it must give.
pub(super) type Step = (usize, &'static str, &'static str);

/// Steps with ranges of fcntl(2).
pub(super) const RANGES: &[Step] = &[
    (LEFT, "write 0 100", "ok"),
    (RIGHT, "write 0 100", "taken"),
    (RIGHT, "read 50 1", "taken"),
    (RIGHT, "test write 0 0", "write 0 100"),
    (RIGHT, "test write 100 0", "free"),
    // Ranges that touch do not overlap.
    (RIGHT, "write 100 100", "ok"),
    (LEFT, "write 99 2", "taken"),
    (LEFT, "test read 0 0", "write 100 100"),
    (RIGHT, "write 99 1", "taken"),
    // An unlock in the middle of a range leaves a lock on each side.
    (LEFT, "unlock 40 20", "ok"),
    (RIGHT, "write 40 20", "ok"),
    (RIGHT, "write 39 1", "taken"),
    (RIGHT, "write 60 1", "taken"),
    (LEFT, "write 40 20", "taken"),
    (LEFT, "test read 30 40", "write 40 20"),
    (RIGHT, "unlock 0 0", "ok"),
    (LEFT, "write 40 20", "ok"),
    (RIGHT, "test read 40 1", "write 0 100"),
    (LEFT, "unlock 0 0", "ok"),
    // Up to the largest possible offset.
    (RIGHT, "write 1000 0", "ok"),
    (LEFT, "write 9223372036854775806 1", "taken"),
    (LEFT, "write 999 1", "ok"),
    (LEFT, "test write 0 0", "write 1000 0"),
    // Both may hold a shared lock.
    (RIGHT, "read 1000 0", "ok"),
    (LEFT, "read 0 0", "ok"),
    (LEFT, "write 2000 1", "taken"),
    (RIGHT, "write 2000 1", "taken"),
    (LEFT, "test write 2000 1", "read 1000 0"),
    (LEFT, "test read 2000 1", "free"),
    (RIGHT, "unlock 0 0", "ok"),
    (LEFT, "write 2000 1", "ok"),
    (RIGHT, "read 2000 1", "taken"),
    (RIGHT, "read 1999 1", "ok"),
    (RIGHT, "write 2001 1", "taken"),
    (LEFT, "unlock 0 0", "ok"),
    (RIGHT, "write 0 0", "ok"),
    (LEFT, "read 0 1", "taken"),
    (RIGHT, "unlock 0 0", "ok"),
    (LEFT, "test write 0 0", "free"),
];

/// Steps with flock(2).
pub(super) const WHOLE_FILES: &[Step] = &[
    (LEFT, "exclusive", "ok"),
    (RIGHT, "exclusive", "taken"),
    (RIGHT, "shared", "taken"),
    (LEFT, "shared", "ok"),
    (RIGHT, "shared", "ok"),
    (RIGHT, "exclusive", "taken"),
    (LEFT, "none", "ok"),
    (RIGHT, "exclusive", "ok"),
    (LEFT, "shared", "taken"),
    (RIGHT, "none", "ok"),
    (LEFT, "exclusive", "ok"),
    (LEFT, "none", "ok"),
];

/// How long a lock may remain after its holder has died: a moment, but the guest is emulated.
pub(super) const RELEASED_WITHIN: Duration = Duration::from_secs(10);

/// The guests, whose scripts end in `obey`.
pub(super) struct Holders {
    guests: Vec<Guest>,
    look_at: PathBuf,
}

impl Holders {
    /// The guests, in the order of [`NAMES`].
    pub(super) fn new(context: &Context, guests: Vec<Guest>) -> Self {
        Self { guests, look_at: context.dir().to_owned() }
    }

    /// Runs a command in a guest.
    pub(super) fn run(&self, who: usize, command: &str) -> anyhow::Result<String> {
        Ok(self.guests[who].run(command)?.trim().to_owned())
    }

    /// Sends a holder a command, and fails unless it answers as it must.
    pub(super) fn ask(&self, holder: &str, (who, words, wanted): Step) -> anyhow::Result<()> {
        let found = self.run(who, &format!("ask {holder} {words}"))?;
        ensure!(
            found == wanted,
            "{holder} of {}: {words:?} is answered {found:?} instead of {wanted:?}; see {}",
            NAMES[who],
            self.look_at.display()
        );
        Ok(())
    }

    /// Fails if a holder has already answered, so does not wait for its lock any more.
    pub(super) fn still_waits(&self, holder: &str, who: usize, seconds: u64) -> anyhow::Result<()> {
        let found = self.run(who, &format!("answer {holder} {seconds}"))?;
        ensure!(found == "nothing", "{holder} of {} has to wait, and is answered {found:?}", NAMES[who]);
        Ok(())
    }

    /// Waits until a holder gets a lock that another has had, and returns how long that took.
    pub(super) fn gets(&self, holder: &str, who: usize, words: &str, within: Duration) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        while self.run(who, &format!("ask {holder} {words}"))? != "ok" {
            ensure!(begin.elapsed() < within, "{} does not get {words:?} within {within:?}", NAMES[who]);
            thread::sleep(Duration::from_millis(500));
        }
        Ok(begin.elapsed())
    }

    /// Starts a holder of a file in each guest.
    pub(super) fn holders(&self, holder: &str, file: &str) -> anyhow::Result<()> {
        for who in [LEFT, RIGHT] {
            self.run(who, &format!("holder {holder} {file}"))?;
        }
        Ok(())
    }

    /// Asks the holders of a file one after the other.
    pub(super) fn steps(&self, file: &str, steps: &[Step]) -> anyhow::Result<()> {
        self.holders(file, file)?;
        steps.iter().try_for_each(|&step| self.ask(file, step))?;
        for who in [LEFT, RIGHT] {
            self.run(who, &format!("tell {file} end; gone {file}"))?;
        }
        Ok(())
    }

    /// A process waits for a lock until its holder gives it back, closes the file, or dies; once the lock is free, the
    /// process must get it within `waits` seconds.
    pub(super) fn wait_and_end(&self, context: &Context, waits: u64) -> anyhow::Result<()> {
        for (kind, back, waiter) in
            [("write 0 10", "unlock 0 10", RIGHT), ("exclusive", "none", LEFT), ("write 0 10", "end", RIGHT)]
        {
            self.holders("waited", "waited")?;
            let holder = 1 - waiter;
            self.ask("waited", (holder, kind, "ok"))?;
            self.run(waiter, &format!("tell waited wait {kind}"))?;
            self.still_waits("waited", waiter, 2)?;
            self.run(holder, &format!("tell waited {back}"))?;
            let begin = Instant::now();
            let found = self.run(waiter, &format!("answer waited {waits}"))?;
            ensure!(found == "ok", "{} waits for {kind:?}, which is free, and is answered {found:?}", NAMES[waiter]);
            context.note(format!("{kind} got {:.1} s after {back}", begin.elapsed().as_secs_f64()));
            if back != "end" {
                self.run(holder, "tell waited end")?;
            }
            self.run(holder, "gone waited")?;
            // A process that is killed releases its locks, too.
            self.run(waiter, "kill -9 $(cat /tmp/waited.pid); gone waited")?;
            self.run(holder, "holder waited waited")?;
            self.gets("waited", holder, kind, RELEASED_WITHIN)?;
            self.run(holder, "tell waited end; gone waited")?;
        }
        Ok(())
    }

    /// Replaces a guest by another one.
    pub(super) fn replace(&mut self, who: usize, boot: impl FnOnce() -> anyhow::Result<Guest>) -> anyhow::Result<()> {
        self.guests.remove(who).kill();
        self.guests.insert(who, boot()?);
        Ok(())
    }

    /// Ends the guests, and fails if one of them does not end well.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        for guest in &self.guests {
            guest.say("end")?;
        }
        self.guests.into_iter().try_for_each(|guest| guest.finish().map(drop))
    }
}
