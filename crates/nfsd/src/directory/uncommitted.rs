//! Files with data that clients wrote and did not commit.
//!
//! The kernel reports a failed write-back once for each open file description, and not at all for those opened after
//! the first report. So each file with uncommitted data keeps one descriptor, opened before the first of the data was
//! written, until everything has been committed through it. All waiting for the disk goes through that descriptor, one
//! wait at a time. If a wait fails, all clients learn it ([`Losses`]), and waits that were about to begin fail, too.
//! Data written stably counts as uncommitted until the disk has it. Owns those descriptors. If there are too many
//! files, a write to a further one waits for the disk at once. The server itself commits a file that no client has
//! written to for long.
//!
//! [`Losses`]: super::losses::Losses

use super::losses::Losses;
use crate::FileId;
use foldhash::HashMap;
use rpcrdma_env::Timestamp;
use rustix::{fd::OwnedFd, io::Errno};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The server commits a file that no client has written to for this long.
pub(super) const UNCOMMITTED_AGE: Duration = Duration::from_secs(30);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The files of one file system that have uncommitted data.
pub(super) struct Uncommitted {
    files: Mutex<HashMap<FileId, Entry>>,
    most: usize,
}

struct Entry {
    fd: Arc<OwnedFd>,
    waited: Arc<Mutex<Waited>>,
    /// How many writes have begun, and how many of them have ended.
    begun: u64,
    ended: u64,
    last: Timestamp,
}

/// Held during a wait for the disk through the descriptor, and until a failure is announced.
#[derive(Default)]
struct Waited {
    /// The kernel has reported a failure, and will not report it again: data that others wrote before may be lost, too.
    has_failed: bool,
    /// How many writes had ended when the last wait began: their data is on the disk.
    stable: u64,
}

/// A write that is under way. It ends when it is dropped.
pub(super) struct Writing<'a> {
    uncommitted: &'a Uncommitted,
    held: Held,
}

impl Writing<'_> {
    /// A write to wait for. If another wait has failed, this one fails too, whatever happens to the file's entry
    /// meanwhile.
    pub(super) fn held(&self) -> Held {
        let Held { file, fd, waited, .. } = &self.held;
        let files = lock(&self.uncommitted.files);
        let entry = files.get(file).filter(|entry| Arc::ptr_eq(&entry.waited, waited));
        // The write is about to end. If the entry is gone, no wait has covered this write.
        let ended = entry.map_or(u64::MAX, |entry| entry.ended + 1);
        Held { file: *file, fd: fd.clone(), waited: waited.clone(), ended }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // Only this entry, not a later one of the same file.
        if let Some(entry) = lock(&self.uncommitted.files).get_mut(&self.held.file)
            && Arc::ptr_eq(&entry.waited, &self.held.waited)
        {
            entry.ended += 1;
        }
    }
}

/// A file whose data a caller can wait for.
pub(super) struct Held {
    pub(super) file: FileId,
    fd: Arc<OwnedFd>,
    waited: Arc<Mutex<Waited>>,
    /// How many writes had ended: the wait is for them.
    ended: u64,
}

/// What a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Written data. Any wait that began after the write covers it.
    Data,
    /// Attributes, too.
    All,
}

impl Uncommitted {
    /// Keeps data of at most `most` files uncommitted; writes to further files wait for the disk at once.
    pub(super) fn new(most: usize) -> Self {
        Self { files: Mutex::default(), most }
    }

    /// Data is about to be written through `fd`. Returns whether there are too many files for the data to stay
    /// uncommitted.
    pub(super) fn begin(&self, file: FileId, fd: &Arc<OwnedFd>, now: Timestamp) -> (Writing<'_>, bool) {
        let mut files = lock(&self.files);
        let is_crowded = files.len() >= self.most && !files.contains_key(&file);
        let entry = files.entry(file).or_insert_with(|| Entry {
            fd: fd.clone(),
            waited: Arc::default(),
            begun: 0,
            ended: 0,
            last: now,
        });
        entry.begun += 1;
        entry.last = now;
        let held = entry.held(file);
        (Writing { uncommitted: self, held }, is_crowded)
    }

    /// The file's descriptor, if it has uncommitted data.
    pub(super) fn hold(&self, file: FileId) -> Option<Held> {
        lock(&self.files).get(&file).map(|entry| entry.held(file))
    }

    /// Waits for the disk with `wait`. A failure counts as a loss before another wait may begin, and also fails the
    /// waits that were about to begin.
    pub(super) fn synchronise(
        &self,
        held: &Held,
        what: For,
        wait: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
        lost: impl FnOnce(Errno),
    ) -> Result<(), Errno> {
        let mut waited = lock(&held.waited);
        // NFS3-LOSS-a
        if waited.has_failed {
            return Err(Errno::IO);
        }
        // NFS3-1813-4.8-a
        if what == For::Data && waited.stable >= held.ended && held.ended > 0 {
            return Ok(());
        }
        // Other writes may have ended while this wait was waiting for its turn.
        let ended = self.current(held).map_or(held.ended, |entry| entry.ended);
        let done = wait(&held.fd);
        match done {
            Ok(()) => {
                waited.stable = ended;
                self.committed(held, ended);
            }
            Err(error) => {
                waited.has_failed = true;
                lost(error);
            }
        }
        done
    }

    fn current(&self, held: &Held) -> Option<Held> {
        self.hold(held.file).filter(|now| Arc::ptr_eq(&now.waited, &held.waited))
    }

    /// The first `ended` writes are on the disk: if there were no others, nothing is uncommitted.
    fn committed(&self, held: &Held, ended: u64) {
        let mut files = lock(&self.files);
        // NFS3-LOSS-a
        let is_all = |entry: &Entry| Arc::ptr_eq(&entry.waited, &held.waited) && entry.begun == ended;
        let closed = files.get(&held.file).is_some_and(is_all).then(|| files.remove(&held.file));
        drop(files);
        drop(closed);
    }

    /// Data that was written to the file may be lost. Returns whether any client has uncommitted data there; the
    /// clients learn of it before the entry goes.
    pub(super) fn lose(&self, file: FileId, losses: &Losses, now: Timestamp) -> bool {
        let mut files = lock(&self.files);
        let is_uncommitted = files.contains_key(&file);
        if is_uncommitted {
            // NFS3-LOSS-a
            losses.add(file, now);
        }
        let closed = files.remove(&file);
        drop(files);
        drop(closed);
        is_uncommitted
    }

    /// The file has been removed: no client asks for its data again.
    pub(super) fn forget(&self, file: FileId) {
        let closed = lock(&self.files).remove(&file);
        drop(closed);
    }

    /// Files that no client has written to for long; each comes again after the same time.
    pub(super) fn left_alone(&self, now: Timestamp) -> Vec<Held> {
        let mut files = lock(&self.files);
        let is_old = |entry: &Entry| entry.begun == entry.ended && now.since(entry.last) >= UNCOMMITTED_AGE;
        let old = files.iter_mut().filter(|(_, entry)| is_old(entry));
        old.map(|(file, entry)| {
            entry.last = now;
            entry.held(*file)
        })
        .collect()
    }

    /// All files that have uncommitted data.
    pub(super) fn all(&self) -> Vec<Held> {
        lock(&self.files).iter().map(|(file, entry)| entry.held(*file)).collect()
    }
}

impl Held {
    /// The file's descriptor.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

impl Entry {
    fn held(&self, file: FileId) -> Held {
        Held { file, fd: self.fd.clone(), waited: self.waited.clone(), ended: self.ended }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn id(number: u8) -> FileId {
        FileId::new(&[number]).unwrap()
    }

    fn fd() -> Arc<OwnedFd> {
        Arc::new(File::open("/dev/null").unwrap().into())
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn wrote(files: &Uncommitted, number: u8, seconds: u64) -> bool {
        files.begin(id(number), &fd(), at(seconds)).1
    }

    fn waits(files: &Uncommitted, held: &Held) {
        files.synchronise(held, For::All, |_| Ok(()), |_| panic!("no failure")).unwrap();
    }

    #[test]
    fn a_descriptor_stays_until_all_that_was_written_is_committed() {
        let files = Uncommitted::new(9);
        wrote(&files, 1, 0);
        let first = files.hold(id(1)).unwrap();
        let (writing, _) = files.begin(id(1), &fd(), at(2));
        waits(&files, &first);
        let last = files.hold(id(1)).expect("a write is under way");
        assert!(Arc::ptr_eq(&first.fd, &last.fd), "the first descriptor is the one that is told of failures");
        drop(writing);
        waits(&files, &last);
        assert!(files.hold(id(1)).is_none(), "also what ended since it was taken");
        waits(&files, &last);
    }

    /// The wait for the disk may have begun before the last bytes were written.
    /// proves: NFS3-LOSS-a
    #[test]
    fn what_ends_while_the_disk_is_waited_for_is_not_committed() {
        let files = Uncommitted::new(9);
        let (writing, _) = files.begin(id(1), &fd(), at(0));
        let held = files.hold(id(1)).unwrap();
        let wait = |_: &OwnedFd| {
            drop(writing);
            Ok(())
        };
        files.synchronise(&held, For::Data, wait, |_| panic!("no failure")).unwrap();
        assert!(files.hold(id(1)).is_some());
    }

    #[test]
    fn a_write_of_before_a_loss_does_not_end_one_of_after_it() {
        let (files, losses) = (Uncommitted::new(9), Losses::default());
        let (before, _) = files.begin(id(1), &fd(), at(0));
        files.lose(id(1), &losses, at(0));
        let (_after, _) = files.begin(id(1), &fd(), at(0));
        drop(before);
        waits(&files, &files.hold(id(1)).unwrap());
        assert!(files.hold(id(1)).is_some(), "a write is under way");
    }

    /// A client that wrote before the wait began need not wait again; one that has set attributes must.
    #[test]
    fn one_waits_for_all_who_have_written_before() {
        let files = Uncommitted::new(9);
        wrote(&files, 1, 0);
        wrote(&files, 1, 0);
        let (early, late) = (files.hold(id(1)).unwrap(), files.hold(id(1)).unwrap());
        let (_more, _) = files.begin(id(1), &fd(), at(0));
        waits(&files, &early);
        let waited = |held: &Held, what| {
            let mut has_waited = false;
            let wait = |_: &OwnedFd| {
                has_waited = true;
                Ok(())
            };
            files.synchronise(held, what, wait, |_| panic!("no failure")).unwrap();
            has_waited
        };
        assert!(!waited(&late, For::Data));
        assert!(waited(&late, For::All));
        drop(_more);
        assert!(waited(&files.hold(id(1)).unwrap(), For::Data), "there was a write since");
    }

    /// The second client wrote before the failure, and the kernel reports it only once.
    /// proves: NFS3-LOSS-a
    #[test]
    fn a_failure_is_told_before_another_may_wait_and_fails_whoever_was_about_to() {
        let (files, losses) = (Uncommitted::new(9), Losses::default());
        wrote(&files, 1, 0);
        let (first, second) = (files.hold(id(1)).unwrap(), files.hold(id(1)).unwrap());
        let (began, begun) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (files, losses) = (&files, &losses);
            scope.spawn(move || {
                let fails = |_: &OwnedFd| {
                    began.send(()).unwrap();
                    std::thread::sleep(Duration::from_millis(50));
                    Err(Errno::NOSPC)
                };
                let lost = |_| {
                    std::thread::sleep(Duration::from_millis(50));
                    files.lose(id(1), losses, at(0));
                };
                assert_eq!(files.synchronise(&first, For::Data, fails, lost), Err(Errno::NOSPC));
            });
            begun.recv().unwrap();
            let waited = files.synchronise(&second, For::Data, |_| Ok(()), |_| panic!("the kernel tells it once"));
            assert_eq!((waited, losses.count(at(0))), (Err(Errno::IO), 1));
        });
        assert!(!files.lose(id(1), &losses, at(9)), "nobody has uncommitted data there");
        assert_eq!(losses.count(at(9)), 1);
    }

    /// The entry is gone, and a new one may have taken its place.
    /// proves: NFS3-LOSS-a
    #[test]
    fn a_write_whose_data_was_lost_meanwhile_fails_though_it_was_not_waited_for_yet() {
        let (files, losses) = (Uncommitted::new(9), Losses::default());
        let (writing, _) = files.begin(id(1), &fd(), at(0));
        let held = writing.held();
        drop(writing);
        let other = files.hold(id(1)).unwrap();
        let lost = |_| assert!(files.lose(id(1), &losses, at(0)));
        files.synchronise(&other, For::Data, |_| Err(Errno::IO), lost).unwrap_err();
        wrote(&files, 1, 1);
        let waited = files.synchronise(&held, For::Data, |_| Ok(()), |_| panic!("told already"));
        assert_eq!(waited, Err(Errno::IO));
        assert!(files.hold(id(1)).is_some(), "the later one stays");
    }

    #[test]
    fn where_there_are_too_many_files_data_does_not_stay_uncommitted() {
        let files = Uncommitted::new(2);
        assert!(!wrote(&files, 1, 5) && !wrote(&files, 2, 3), "at the limit");
        assert!(!wrote(&files, 1, 6), "one of them");
        assert!(wrote(&files, 3, 7), "one past it");
        waits(&files, &files.hold(id(3)).unwrap());
        assert_eq!(files.all().len(), 2);
    }

    #[test]
    fn files_that_are_left_alone_are_found() {
        let files = Uncommitted::new(9);
        wrote(&files, 1, 0);
        wrote(&files, 2, 1);
        let age = UNCOMMITTED_AGE.as_secs();
        let old = |seconds| files.left_alone(at(seconds)).iter().map(|held| held.file).collect::<Vec<_>>();
        assert_eq!((old(age - 1), old(age)), (vec![], vec![id(1)]));
        files.forget(id(1));
        assert_eq!(old(age + 1), [id(2)]);
        assert_eq!((old(age + 2), old(2 * age + 1)), (vec![], vec![id(2)]), "not again at once");
    }
}
