//! Which warnings an operator gets, and how often.

use crate::{
    DirectoryFs, Export, FileSystem, Identities, MemoryFs, Nfsd, Queue, Squash, StateDirectory,
    testing::{Client, SECRET, env},
    trouble::BETWEEN_WARNINGS,
};
use rpcrdma_env::{BoxFuture, Clock, Env, Timestamp};
use rpcrdma_nfs::v3::Status;
use std::{
    io,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tracing_subscriber::fmt;

/// A clock that stands still until a test sets it.
#[derive(Default)]
struct Standing(AtomicU64);

impl Standing {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn unix_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// A log that a test can read.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl io::Write for Kept {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A second log beside that of the test. If a program has only one log, tracing asks the log of the first thread that
/// reaches a place in the code whether the place matters. That thread may have no log; then the place stays silent for
/// the test's log, too.
static ANOTHER: LazyLock<tracing::Dispatch> = LazyLock::new(|| fmt().with_writer(io::sink).finish().into());

/// The warnings that are logged while `run` runs.
pub(crate) fn warnings(run: impl FnOnce()) -> Vec<String> {
    LazyLock::force(&ANOTHER);
    let kept = Kept::default();
    let writer = kept.clone();
    let log = fmt().with_writer(move || writer.clone()).with_ansi(false).without_time().finish();
    tracing::subscriber::with_default(log, run);
    let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    text.lines().filter(|line| line.trim_start().starts_with("WARN")).map(str::to_owned).collect()
}

fn client(file_system: Arc<dyn FileSystem>, clock: Arc<Standing>) -> Client {
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", file_system).with_identities(identities);
    let env = Env { clock, ..env() };
    Client::of(&Nfsd::new(vec![export], SECRET, &env).unwrap())
}

#[test]
fn a_full_disk_is_told_once_a_minute_with_the_number_of_the_others() {
    let clock = Arc::new(Standing::default());
    let client = client(Arc::new(MemoryFs::new(1 << 19, &env())), clock.clone());
    let file = client.new_file(&client.root(), "file");
    let fill = || {
        assert_eq!(client.write(&file, 0, vec![1; 1 << 20]).err(), Some(Status::NOSPC));
    };
    let told = warnings(|| {
        fill();
        fill();
        clock.advance(BETWEEN_WARNINGS - Duration::from_nanos(1));
        fill();
    });
    assert_eq!(told.len(), 1, "{told:#?}");
    for field in
        ["NOSPC", "procedure=\"WRITE\"", "client=127.0.0.1:700", "export=\"/\"", "file=\"", "untold=0", "no space"]
    {
        assert!(told[0].contains(field), "{field}: {told:#?}");
    }
    clock.advance(Duration::from_nanos(1));
    let told = warnings(fill);
    assert!(told.len() == 1 && told[0].contains("untold=2"), "{told:#?}");
}

/// A client that causes one status does not hide another.
#[test]
fn each_status_has_its_own_warning_and_the_path_is_named() {
    let clock = Arc::new(Standing::default());
    let scratch = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(scratch.path().join("state"), &*env().random).unwrap();
    let served = scratch.path().join("ser\nved grün");
    std::fs::create_dir(&served).unwrap();
    let directory = DirectoryFs::open(&served, &state, Queue::in_place(), &env()).unwrap();
    let client = client(Arc::new(directory), clock);
    let file = client.new_file(&client.root(), "file");
    std::fs::remove_file(served.join("file")).unwrap();
    let told = warnings(|| {
        for _ in 0..3 {
            assert_eq!(client.attributes(&file).err(), Some(Status::STALE));
        }
        assert_eq!(client.lookup(&client.root(), "nothing").map(|_| ()), Err(Status::NOENT));
    });
    assert_eq!(told.len(), 1, "and none of what is not there: {told:#?}");
    // In quotes, so that a name cannot look like another field; its escapes have two backslashes.
    let escaped = format!("served=\"{}/ser\\\\nved grün\"", scratch.path().display());
    for field in ["STALE", "procedure=\"GETATTR\"", "mount again", &escaped] {
        assert!(told[0].contains(field), "{field}: {told:#?}");
    }
}
