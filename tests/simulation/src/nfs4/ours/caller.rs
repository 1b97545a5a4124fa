//! The work of a caller with a client of ours, and the checks of the answers.
//!
//! A caller reports to the checks what it gets when it has the reply, and that it gives something up before it tells
//! the server or goes away.

use crate::{
    lock,
    nfs4::{
        LEASE, Scene,
        checks::{Checks, Thing},
        delegations::NAMES as SHARED,
    },
};
use bytes::Bytes;
use futures_util::future::{Either, select};
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_nfs::{
    attr::NewAttributes,
    v4::{
        Handle, Name, Op, Status,
        ops::{LockKind, Stability},
    },
};
use rpcrdma_nfs_client::v4::{Access, Error, How, Lost, Nfs4, Opened, Span};
use std::{
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The number of counters, one behind the other in a file, and their bytes: as with lean clients.
const COUNTERS: u64 = 2;
const COUNTER_OCTETS: u64 = 8;
/// The last digit of its number distinguishes a caller from others of the same client.
const CALLERS: usize = 10;
/// The most bytes in a piece of a file, and the most pieces.
const MAX_PIECE: u64 = 20_000;
const MAX_PIECES: u64 = 4;
/// The same for a file with more than 4 MiB, which the server copies in the background.
const LARGE_PIECE: u64 = 1_000_000;
const LARGE_PIECES: usize = 5;
/// One operation in so many stops in the middle.
const LEFT_ONE_IN: u64 = 6;
/// One copy in so many is of a large file.
const LARGE_ONE_IN: u64 = 8;
/// The longest time before a caller goes away, in microseconds.
const MAX_WAIT_MICROS: u64 = 4_000;
/// How often a caller asks for a file that another denies.
const PATIENCE: u64 = 40;
const PAUSE: Duration = Duration::from_secs(1);

/// A file with the contents that the server has acknowledged.
#[derive(Debug)]
pub(super) struct Written {
    name: String,
    octets: Vec<u8>,
}

/// A caller.
pub(super) struct Caller {
    scene: Scene,
    /// Its client's number, and its own number among all callers.
    client: usize,
    number: usize,
    /// The incarnation of its client, for unique names.
    life: u64,
    nfs: Nfs4,
    random: SeededRandom,
    written: Arc<Mutex<Vec<Written>>>,
    made: Vec<String>,
    count: u64,
}

/// Something that excludes others. Dropping the value gives it up.
struct Has {
    checks: Arc<Checks>,
    thing: Thing,
    caller: usize,
}

impl Has {
    fn new(checks: &Arc<Checks>, thing: Thing, caller: usize, is_late: bool) -> Self {
        match is_late {
            true => checks.got_late(thing, caller),
            false => checks.got(thing, caller),
        }
        Self { checks: checks.clone(), thing, caller }
    }
}

impl Drop for Has {
    fn drop(&mut self) {
        self.checks.gives_up(self.thing, self.caller);
    }
}

/// A call that must not be executed twice. If this is dropped before the outcome is known, the outcome stays unknown.
struct Outstanding {
    checks: Arc<Checks>,
    op: Op,
    is_known: bool,
}

impl Outstanding {
    fn new(checks: &Arc<Checks>, op: Op) -> Self {
        Self { checks: checks.clone(), op, is_known: false }
    }

    fn acknowledged(mut self) {
        self.is_known = true;
        self.checks.acknowledged(self.op);
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        if !self.is_known {
            self.checks.unsure(self.op);
        }
    }
}

/// An open file, and how often, before the open, its client had been away for long and the server had restarted.
struct File {
    opened: Opened,
    departures: u64,
    starts: u64,
}

impl Caller {
    pub(super) fn new(
        scene: &Scene,
        client: usize,
        index: usize,
        nfs: Nfs4,
        random: SeededRandom,
        written: Arc<Mutex<Vec<Written>>>,
    ) -> Self {
        let (number, life) = (client * CALLERS + index, random.next_u64());
        Self { scene: scene.clone(), client, number, life, nfs, random, written, made: Vec::new(), count: 0 }
    }

    pub(super) async fn run(mut self, rounds: u64) {
        let world = self.scene.world.clone();
        for _ in 0..rounds {
            let wait = match self.random.below(LEFT_ONE_IN) {
                0 => Some(Duration::from_micros(self.random.below(MAX_WAIT_MICROS))),
                _ => None,
            };
            let done = match wait {
                None => self.act().await,
                Some(wait) => {
                    let tally = self.scene.tally.clone();
                    match select(pin!(self.act()), pin!(world.sleep(wait))).await {
                        Either::Left((done, _)) => done,
                        Either::Right(_) => {
                            tally.count("ours: a caller goes away in the middle");
                            Ok(())
                        }
                    }
                }
            };
            if let Err(error) = done {
                // The client was away for longer than the transport waits, or longer than the server waits for
                // OPEN_CONFIRM.
                if is_of_absence(&error) && self.checks().departures(self.client) > 0 {
                    self.scene.tally.count("ours: a call fails for an absence");
                    continue;
                }
                self.scene.checks.found(format!("caller {}: {error}", self.number));
            }
        }
    }

    /// Does one operation. Every error that it returns is a finding.
    async fn act(&mut self) -> Result<(), Error> {
        match self.random.below(16) {
            0 | 1 => self.make().await,
            2 => self.remove().await,
            3..=7 => self.count_up().await,
            8..=10 => self.write_file().await,
            11 => self.read_file().await,
            12 => self.small_file().await,
            13 => self.copy_file().await,
            _ => self.visit().await,
        }
    }

    fn checks(&self) -> &Arc<Checks> {
        &self.scene.checks
    }

    async fn root(&self) -> Result<Handle, Error> {
        Ok(self.nfs.root().await?.file)
    }

    fn unique(&mut self) -> String {
        self.count += 1;
        format!("{}-{:016x}-{}", self.number, self.life, self.count)
    }

    async fn open(&self, name: &str, access: Access, how: How) -> Result<File, Error> {
        let (departures, starts) = (self.checks().departures(self.client), self.checks().starts());
        let root = self.root().await?;
        let (opened, _) = self.nfs.open(&root, &called(name), access, how).await?;
        self.checks().called();
        Ok(File { opened, departures, starts })
    }

    /// Opens a file, and tries again while another denies it.
    async fn open_patiently(&self, name: &str, access: Access, how: How) -> Result<Option<File>, Error> {
        for _ in 0..PATIENCE {
            match self.open(name, access, how).await {
                Err(error) if error.status() == Some(Status::SHARE_DENIED) => {
                    self.scene.tally.count("ours: somebody else denies it");
                    self.scene.world.sleep(PAUSE).await;
                }
                opened => return opened.map(Some),
            }
        }
        Ok(None)
    }

    /// Whether the server may have taken a file away: its client was away for long since, or before a restart. After a
    /// restart, a client that has lost something and does not know it yet cannot reclaim.
    fn may_be_lost(&self, departures: u64, starts: u64) -> bool {
        let now = self.checks().departures(self.client);
        now != departures || now > 0 && self.checks().starts() != starts
    }

    /// A client may learn of a loss only if it was away for long.
    fn excuse<T>(&self, file: &File, result: Result<T, Error>) -> Result<Option<T>, Error> {
        self.excuse_since((file.departures, file.starts), result)
    }

    /// The same for a call that began at these counts of departures and starts.
    fn excuse_since<T>(&self, (departures, starts): (u64, u64), result: Result<T, Error>) -> Result<Option<T>, Error> {
        match result {
            Err(Error::Lost { what, .. }) if self.may_be_lost(departures, starts) => {
                self.scene.tally.count(match what {
                    Lost::Open => "ours: an open is told to be lost",
                    Lost::Locks => "ours: locks are told to be lost",
                });
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// Makes a directory with a unique name: if it already exists, it was made twice.
    async fn make(&mut self) -> Result<(), Error> {
        let (name, root) = (self.unique(), self.root().await?);
        let outstanding = Outstanding::new(self.checks(), Op::Create);
        self.nfs.mkdir(&root, &called(&name), &NewAttributes::default()).await?;
        outstanding.acknowledged();
        self.made.push(name);
        Ok(())
    }

    /// Removes one of these directories: if it does not exist, it was removed twice.
    async fn remove(&mut self) -> Result<(), Error> {
        let Some(name) = self.made.pop() else { return Ok(()) };
        let root = self.root().await?;
        let outstanding = Outstanding::new(self.checks(), Op::Remove);
        self.nfs.remove(&root, &called(&name)).await?;
        outstanding.acknowledged();
        Ok(())
    }

    /// Locks a counter, counts it up, perhaps keeps it for longer than a lease, and gives it back.
    async fn count_up(&mut self) -> Result<(), Error> {
        let counter = self.random.below(COUNTERS);
        let thing = Thing::Counter(counter as usize);
        let offset = counter * COUNTER_OCTETS;
        let how = How::Unchecked(NewAttributes::default());
        let Some(file) = self.open_patiently("counters", Access::Both, how).await? else { return Ok(()) };
        let locked = match self.random.below(2) {
            0 => self.nfs.lock(&file.opened, LockKind::Write, offset, COUNTER_OCTETS).await,
            _ => self.nfs.lock_when_free(&file.opened, LockKind::Write, offset, COUNTER_OCTETS).await,
        };
        match locked {
            Err(Error::Locked { .. }) => {
                self.scene.tally.count("ours: somebody else has the lock");
                return self.close(file).await;
            }
            locked => {
                if self.excuse(&file, locked)?.is_none() {
                    return self.close(file).await;
                }
            }
        }
        let is_late = self.checks().departures(self.client) != file.departures;
        let has = Has::new(self.checks(), thing, self.number, is_late);
        let held = self.random.below(4) == 0;
        if self.count_once(&file, &has, counter, offset).await?.is_some() && held {
            self.scene.tally.count("ours: held for longer than a lease");
            self.scene.world.sleep(LEASE.mul_f64(1.0 + self.random.below(200) as f64 / 100.0)).await;
            self.count_once(&file, &has, counter, offset).await?;
        }
        drop(has);
        if self.random.below(2) == 0 {
            let unlocked = self.nfs.unlock(&file.opened, offset, COUNTER_OCTETS).await;
            self.excuse(&file, unlocked)?;
        }
        if self.random.below(4) == 0 {
            // Then the driver closes the file.
            return Ok(());
        }
        self.close(file).await
    }

    /// Counts up under a lock. `None` if the lock is lost.
    async fn count_once(&mut self, file: &File, has: &Has, counter: u64, offset: u64) -> Result<Option<()>, Error> {
        let number = counter as usize;
        // A caller that has already lost the lock must not be able to read or write under it.
        let is_lost = !self.checks().has(has.thing, self.number);
        let read = self.nfs.read(&file.opened, offset, COUNTER_OCTETS as u32).await;
        let Some(read) = self.excuse(file, read)? else { return Ok(None) };
        let mut octets = [0; COUNTER_OCTETS as usize];
        octets[..read.data.len()].copy_from_slice(&read.data);
        let value = u64::from_be_bytes(octets);
        if is_lost {
            self.checks().found(format!("caller {} reads {:?} by a lock that another has", self.number, has.thing));
            return Ok(None);
        }
        // Meanwhile the lock may be lost and another may have counted up: then the write must fail.
        if !self.checks().has(has.thing, self.number) {
            return self.write_lost(file, has, offset, value).await;
        }
        self.checks().read(number, value);
        let next = value + 1;
        let departures = self.checks().departures(self.client);
        self.checks().wrote(number, next, false);
        let data = Bytes::copy_from_slice(&next.to_be_bytes());
        let written = self.nfs.write(&file.opened, offset, Stability::FileSync, data).await;
        if self.excuse(file, written)?.is_none() {
            return Ok(None);
        }
        if self.checks().has(has.thing, self.number) {
            self.checks().wrote(number, next, true);
            self.checks().confirms(has.thing, self.number, departures);
            self.scene.tally.count("ours: counted up");
        }
        Ok(Some(()))
    }

    /// Writes under a lock that another has: the write must fail.
    async fn write_lost(&self, file: &File, has: &Has, offset: u64, value: u64) -> Result<Option<()>, Error> {
        let data = Bytes::copy_from_slice(&value.to_be_bytes());
        let written = self.nfs.write(&file.opened, offset, Stability::FileSync, data).await;
        if self.excuse(file, written)?.is_some() {
            self.checks().found(format!("caller {} writes {:?} by a lock that another has", self.number, has.thing));
        }
        Ok(None)
    }

    async fn close(&self, file: File) -> Result<(), Error> {
        let File { opened, departures, starts } = file;
        match self.nfs.close(opened).await {
            Err(Error::Lost { .. }) if self.may_be_lost(departures, starts) => Ok(()),
            closed => closed,
        }
    }

    /// Makes a new file, and writes to it in pieces.
    async fn write_file(&mut self) -> Result<(), Error> {
        let pieces: Vec<_> = (0..1 + self.random.below(MAX_PIECES))
            .map(|_| (1 + self.random.below(MAX_PIECE), self.random.next_u64() as u8, self.random.below(3)))
            .collect();
        self.write_pieces(pieces).await
    }

    async fn write_pieces(&mut self, pieces: Vec<(u64, u8, u64)>) -> Result<(), Error> {
        let name = self.unique();
        let how = match self.random.below(2) {
            0 => How::Guarded(NewAttributes::default()),
            _ => How::Exclusive(NewAttributes::default()),
        };
        let file = self.open(&name, Access::Both, how).await?;
        let mut octets = Vec::new();
        for (len, with, stability) in pieces {
            let piece: Vec<u8> = (0..len).map(|at| with.wrapping_add(at as u8)).collect();
            loop {
                let data = Bytes::copy_from_slice(&piece);
                let stability = if stability == 0 { Stability::Unstable } else { Stability::FileSync };
                let written = self.nfs.write(&file.opened, octets.len() as u64, stability, data).await;
                let Some(written) = self.excuse(&file, written)? else { return self.close(file).await };
                if u64::from(written.count) < len {
                    self.checks()
                        .found(format!("caller {}: {} of {len} bytes are written", self.number, written.count));
                }
                if stability != Stability::Unstable
                    || self.nfs.commit(file.opened.file(), 0, 0).await? == written.verifier
                {
                    break;
                }
                self.scene.tally.count("ours: written once more");
            }
            octets.extend(piece);
        }
        self.close(file).await?;
        self.scene.tally.count("ours: a file is written");
        lock(&self.written).push(Written { name, octets });
        Ok(())
    }

    /// Takes one of the written files, so that no other caller uses it.
    fn some_file(&self) -> Option<Written> {
        let mut written = lock(&self.written);
        let at = self.random.below(written.len().max(1) as u64) as usize;
        (at < written.len()).then(|| written.swap_remove(at))
    }

    /// Reads a written file. Afterwards, or if this stops in the middle, other callers can use the file again.
    async fn read_file(&mut self) -> Result<(), Error> {
        let Some(written) = self.some_file() else { return Ok(()) };
        let kept = Kept { all: self.written.clone(), written: Some(written) };
        let Some(written) = &kept.written else { return Ok(()) };
        written.read(&self.scene, &self.nfs).await
    }

    /// Writes and reads a small file in one call.
    async fn small_file(&mut self) -> Result<(), Error> {
        let (name, root) = (self.unique(), self.root().await?);
        let octets = Bytes::from(vec![self.random.next_u64() as u8; 1 + self.random.below(3_000) as usize]);
        let how = How::Exclusive(NewAttributes::default());
        let since = (self.checks().departures(self.client), self.checks().starts());
        let written = self.nfs.write_small(&root, &called(&name), how, Stability::FileSync, octets.clone()).await;
        // In minor version 0 these are several calls, and the client may have been away between them.
        let Some((_, written)) = self.excuse_since(since, written)? else { return Ok(()) };
        if written.count as usize != octets.len() {
            self.checks().found(format!("caller {}: {} bytes are written", self.number, written.count));
        }
        let read = self.nfs.read_small(&root, &called(&name), 4_000).await?;
        if read.data != octets || !read.end {
            self.checks().found(format!("caller {}: {name} has {} other bytes", self.number, read.data.len()));
        }
        lock(&self.written).push(Written { name, octets: octets.to_vec() });
        Ok(())
    }

    /// Lets the server copy a file, sometimes one so large that the server calls when the copy has ended.
    async fn copy_file(&mut self) -> Result<(), Error> {
        if self.nfs.minor() < 2 {
            return Ok(());
        }
        if self.random.below(LARGE_ONE_IN) == 0 {
            self.write_pieces(vec![(LARGE_PIECE, self.random.next_u64() as u8, 1); LARGE_PIECES]).await?;
        }
        let Some(source) = self.some_file() else { return Ok(()) };
        let kept = Kept { all: self.written.clone(), written: Some(source) };
        let Some(source) = &kept.written else { return Ok(()) };
        let from = self.open(&source.name, Access::Read, How::Existing).await?;
        let name = self.unique();
        let to = self.open(&name, Access::Both, How::Exclusive(NewAttributes::default())).await?;
        let (mut done, all) = (0, source.octets.len() as u64);
        while done < all {
            let span = Span { source_offset: done, offset: done, count: all - done };
            let copied = self.nfs.copy(&from.opened, &to.opened, span).await;
            let Some(copied) = self.excuse(&from, copied)? else { return Ok(()) };
            done += copied.count;
        }
        self.close(from).await?;
        self.close(to).await?;
        self.scene.tally.count("ours: a file is copied");
        lock(&self.written).push(Written { name, octets: source.octets.clone() });
        Ok(())
    }

    /// Opens a file of which a lean client may have a delegation, and reads it.
    async fn visit(&mut self) -> Result<(), Error> {
        let file = self.random.below(SHARED.len() as u64) as usize;
        let writes = self.random.below(2) == 0;
        let access = if writes { Access::Both } else { Access::Read };
        let how = How::Unchecked(NewAttributes::default());
        let Some(opened) = self.open_patiently(SHARED[file], access, how).await? else { return Ok(()) };
        self.scene.tally.count("ours: a visit");
        // If the client was away for long since the open began, the server may have taken the open away.
        let is_late = self.checks().departures(self.client) != opened.departures;
        let using = (!is_late).then(|| self.checks().uses(file, self.number, writes));
        let read = self.nfs.read(&opened.opened, 0, COUNTER_OCTETS as u32).await;
        self.excuse(&opened, read)?;
        drop(using);
        self.close(opened).await
    }
}

/// Whether a long absence of the client can cause this error.
fn is_of_absence(error: &Error) -> bool {
    match error {
        Error::Call { .. } | Error::Lost { operation: Op::OpenConfirm, .. } => true,
        Error::AfterCreation(error) => is_of_absence(error),
        _ => false,
    }
}

/// The client of ours to which a caller belongs.
pub(in crate::nfs4) fn client_of(caller: usize) -> usize {
    caller / CALLERS
}

/// A file in use. Dropping the value puts it back.
struct Kept {
    all: Arc<Mutex<Vec<Written>>>,
    written: Option<Written>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        lock(&self.all).extend(self.written.take());
    }
}

impl Written {
    /// At the end: checks that the acknowledged bytes are there.
    pub(super) async fn judge(&self, scene: &Scene, client: usize, nfs: &Nfs4) {
        for _ in 0..PATIENCE {
            match self.read(scene, nfs).await {
                // The transport gives up only now the attempts that it made during the absence.
                Err(error) if is_of_absence(&error) && scene.checks.departures(client) > 0 => {
                    scene.tally.count("ours: a call fails for an absence");
                    scene.world.sleep(PAUSE).await;
                }
                Err(error) => return scene.checks.found(format!("{}: {error}", self.name)),
                Ok(()) => return,
            }
        }
        scene.checks.found(format!("{} cannot be read any more", self.name));
    }

    async fn read(&self, scene: &Scene, nfs: &Nfs4) -> Result<(), Error> {
        let root = nfs.root().await?.file;
        let file = nfs.lookup(&root, &called(&self.name)).await?.file;
        let mut octets = Vec::new();
        loop {
            let read = nfs.read(&file, octets.len() as u64, 256 << 10).await?;
            octets.extend_from_slice(&read.data);
            if read.end {
                break;
            }
        }
        scene.tally.count("ours: a file is read");
        if octets != self.octets {
            let at = octets.iter().zip(&self.octets).position(|(is, was)| is != was);
            let (has, had) = (octets.len(), self.octets.len());
            scene.checks.found(format!("{} has {has} bytes of {had}, others from {at:?} on", self.name));
        }
        Ok(())
    }
}

fn called(text: &str) -> Name {
    Name(Bytes::copy_from_slice(text.as_bytes()))
}
