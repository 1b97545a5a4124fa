//! The thread that writes small files: the file system takes as much time for them as the server's answers do, so both
//! go on at the same time.
//!
//! Owns what is given to it until it has answered. When it is dropped, it ends the file that it is writing, and begins
//! no other: no temporary file is left.

use super::target::{Output, is_errno};
use crate::args::Placing;
use anyhow::{Context, Result};
use bytes::Bytes;
use rpcrdma_env::Random;
use rpcrdma_nfs::attr::Attributes;
use rustix::io::Errno;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};
use tokio::sync::oneshot;

/// How many files the writing thread reports at a time, at most: to wake the thread that asks costs as much as to write
/// a file. More than that are under way.
const TOLD_TOGETHER: usize = 16;

/// A file that has come whole.
pub(super) struct Whole {
    pub(super) local: PathBuf,
    /// This run has made the directory that it goes into.
    pub(super) is_in_new: bool,
    pub(super) source: Attributes,
    pub(super) data: Bytes,
}

/// What to report about a file, and the result.
pub(super) struct Placed {
    pub(super) notes: Vec<String>,
    pub(super) result: Result<()>,
}

type Job = (Whole, oneshot::Sender<Placed>);

/// The thread.
pub(super) struct Writing {
    jobs: Option<mpsc::Sender<Job>>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writing {
    pub(super) fn start(placing: Placing, random: Arc<dyn Random>) -> Result<Self> {
        let (jobs, receiver) = mpsc::channel::<Job>();
        let stops = Arc::new(AtomicBool::new(false));
        let stopped = stops.clone();
        let mut writer = Writer { placing, random, tells_late: None };
        let thread = thread::Builder::new().name("rpcrdma-write".into());
        let thread = thread.spawn(move || writer.run(&receiver, &stopped));
        Ok(Self { jobs: Some(jobs), stops, thread: Some(thread.context("cannot start a thread that writes files")?) })
    }

    /// Writes a file, and gives it its name.
    pub(super) async fn place(&self, whole: Whole) -> Placed {
        let (sender, receiver) = oneshot::channel();
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send((whole, sender)).is_ok());
        let placed = if sent { receiver.await.ok() } else { None };
        placed.unwrap_or_else(|| Placed {
            notes: Vec::new(),
            result: Err(anyhow::anyhow!("the thread that writes files has ended")),
        })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has printed so.
            let _ = thread.join();
        }
    }
}

struct Writer {
    placing: Placing,
    random: Arc<dyn Random>,
    /// For the directory that was written into last, whether its file system reports late that there is no room.
    tells_late: Option<(PathBuf, bool)>,
}

impl Writer {
    /// Writes what it gets, as long as there is a sender, and nothing more after a request to stop.
    fn run(&mut self, jobs: &mpsc::Receiver<Job>, stops: &AtomicBool) {
        let mut placed = Vec::with_capacity(TOLD_TOGETHER);
        while let Ok(job) = jobs.recv() {
            let mut next = Some(job);
            while let Some((whole, sender)) = next.take()
                && !stops.load(Ordering::Relaxed)
            {
                placed.push((sender, self.place(&whole)));
                if placed.len() < TOLD_TOGETHER {
                    next = jobs.try_recv().ok();
                }
            }
            // The sender may have gone.
            placed.drain(..).for_each(|(sender, placed)| drop(sender.send(placed)));
        }
    }

    fn place(&mut self, whole: &Whole) -> Placed {
        let mut notes = Vec::new();
        let result = self.try_place(whole, &mut notes);
        Placed { notes, result }
    }

    fn try_place(&mut self, whole: &Whole, notes: &mut Vec<String>) -> Result<()> {
        let Whole { local, is_in_new, source, .. } = whole;
        if *is_in_new && let Some(output) = Output::open_unnamed(local) {
            match self.write(output, whole, notes) {
                // A file that has appeared there meanwhile is replaced.
                Err(error) if is_errno(&error, &[Errno::EXIST]) => {}
                written => return written,
            }
        }
        let output = match is_in_new {
            true => Output::open_in_new(local, &*self.random)?,
            false => Output::open(local, self.placing, source, &*self.random)?,
        };
        self.write(output, whole, notes)
    }

    fn write(&mut self, output: Output, whole: &Whole, notes: &mut Vec<String>) -> Result<()> {
        let Whole { local, source, data, .. } = whole;
        notes.extend(output.in_place.map(|reason| format!("is written in place: {reason}")));
        if let Err(error) = output.write_data(data, 0, source) {
            notes.extend(output.remains());
            return Err(error.into());
        }
        let tells_late = self.tells_late(&output, local)?;
        notes.extend(output.finish_here(data.len() as u64, source, tells_late)?.map(str::to_owned));
        Ok(())
    }

    fn tells_late(&mut self, output: &Output, local: &Path) -> Result<bool> {
        let directory = local.parent().unwrap_or(local);
        match &self.tells_late {
            // A file with several names is written in place, but into the file system of its directory.
            Some((known, late)) if known == directory => Ok(*late),
            _ => {
                let late = output.tells_late()?;
                self.tells_late = Some((directory.to_owned(), late));
                Ok(late)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::sample_attributes, *};
    use rpcrdma_env::SeededRandom;
    use rpcrdma_nfs::attr::FileType;
    use std::{
        fs,
        pin::Pin,
        sync::Mutex,
        task::{Context, Wake, Waker},
    };

    const PLAIN: Placing = Placing { inplace: false, resume: false };

    fn whole(local: PathBuf, is_in_new: bool) -> Whole {
        let source = sample_attributes(FileType::Regular);
        Whole { local, is_in_new, source, data: Bytes::from_static(b"octets!") }
    }

    fn placed(writing: &Writing, whole: Whole) -> Placed {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(writing.place(whole))
    }

    #[test]
    fn files_get_their_names_when_they_are_whole() {
        let scratch = tempfile::tempdir().unwrap();
        let writing = Writing::start(PLAIN, Arc::new(SeededRandom::new(1))).unwrap();
        for (name, is_in_new) in [("new", true), ("known", false), ("known", false)] {
            let placed = placed(&writing, whole(scratch.path().join(name), is_in_new));
            placed.result.unwrap();
            assert!(placed.notes.is_empty(), "{:?}", placed.notes);
            assert_eq!(fs::read(scratch.path().join(name)).unwrap(), b"octets!");
        }
        fs::hard_link(scratch.path().join("known"), scratch.path().join("other")).unwrap();
        let told = placed(&writing, whole(scratch.path().join("known"), false));
        told.result.unwrap();
        assert_eq!(told.notes, ["is written in place: it has several names"]);
        let failed = placed(&writing, whole(scratch.path().join("absent/file"), true));
        assert!(failed.result.is_err());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 3, "no temporary file is left");
    }

    #[test]
    fn a_name_that_is_a_link_here_leads_nowhere_also_in_a_new_directory() {
        let scratch = tempfile::tempdir().unwrap();
        let (link, elsewhere) = (scratch.path().join("link"), scratch.path().join("elsewhere"));
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        let writing = Writing::start(PLAIN, Arc::new(SeededRandom::new(1))).unwrap();
        placed(&writing, whole(link.clone(), true)).result.unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_file() && !elsewhere.exists());
    }

    /// How many files exist when the thread reports one.
    struct Told {
        directory: PathBuf,
        files: Mutex<Vec<usize>>,
    }

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            self.files.lock().unwrap().push(fs::read_dir(&self.directory).unwrap().count());
        }
    }

    /// Counted: the thread that asks is woken once for sixteen files, and for the last of them at once.
    #[test]
    fn files_that_wait_are_told_together() {
        let scratch = tempfile::tempdir().unwrap();
        let told = Arc::new(Told { directory: scratch.path().to_owned(), files: Mutex::default() });
        let waker = Waker::from(told.clone());
        let (jobs, receiver) = mpsc::channel();
        let mut answers: Vec<_> = (0..20)
            .map(|number| {
                let (sender, answer) = oneshot::channel();
                jobs.send((whole(scratch.path().join(format!("{number}")), true), sender)).unwrap();
                answer
            })
            .collect();
        let cx = &mut Context::from_waker(&waker);
        assert!(answers.iter_mut().all(|answer| Pin::new(answer).poll(cx).is_pending()));
        drop(jobs);
        let mut writer = Writer { placing: PLAIN, random: Arc::new(SeededRandom::new(1)), tells_late: None };
        writer.run(&receiver, &AtomicBool::new(false));
        assert_eq!(*told.files.lock().unwrap(), [vec![16; 16], vec![20; 4]].concat());
        for answer in &mut answers {
            answer.try_recv().unwrap().result.unwrap();
        }
    }

    #[test]
    fn nothing_is_begun_once_it_ends() {
        let scratch = tempfile::tempdir().unwrap();
        let writing = Writing::start(PLAIN, Arc::new(SeededRandom::new(1))).unwrap();
        writing.stops.store(true, Ordering::Relaxed);
        let placed = placed(&writing, whole(scratch.path().join("late"), true));
        assert!(placed.result.unwrap_err().to_string().contains("has ended"));
        drop(writing);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
