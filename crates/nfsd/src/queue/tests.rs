mod together;

use super::*;
use crate::FileId;
use std::{
    net::SocketAddr,
    sync::mpsc::{Receiver, Sender, channel},
};

/// Keeps the work for threads until a test asks for it.
struct Later {
    threads: usize,
    kept: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Workers for Later {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        self.kept.lock().unwrap().push(job);
    }

    fn threads(&self) -> usize {
        self.threads
    }
}

struct World {
    workers: Arc<Later>,
    queue: Arc<Queue>,
    told: Sender<&'static str>,
    done: Receiver<&'static str>,
}

impl World {
    fn new(threads: usize) -> Self {
        let workers = Arc::new(Later { threads, kept: Mutex::default() });
        let (told, done) = channel();
        Self { queue: Queue::new(workers.clone()), workers, told, done }
    }

    fn give(&self, client: u8, lane: Lane, turn: Option<u8>, name: &'static str) {
        let told = self.told.clone();
        let work = Box::new(move || {
            told.send(name).unwrap();
            None
        });
        self.queue.run(origin(client), Job::new(lane, turn.map(file), work));
    }

    /// The work for which the queue has asked for threads.
    fn threads(&self) -> Vec<Box<dyn FnOnce() + Send>> {
        std::mem::take(&mut self.workers.kept.lock().unwrap())
    }

    fn done(&self) -> Vec<&'static str> {
        self.done.try_iter().collect()
    }

    fn is_empty(&self) -> bool {
        let state = self.queue.state();
        state.running.all == 0 && state.running_of.is_empty() && state.files.is_empty()
    }
}

fn origin(client: u8) -> Origin {
    Origin::at(SocketAddr::from(([192, 0, 2, client], 700)))
}

fn file(number: u8) -> FileKey {
    FileKey { file_system: 1, file: FileId::new(&[number]).unwrap() }
}

#[test]
fn changes_of_a_file_run_in_their_order_and_take_one_thread() {
    let world = World::new(8);
    for (turn, name) in [(1, "a"), (1, "b"), (2, "c"), (1, "d")] {
        world.give(1, Lane::Data, Some(turn), name);
    }
    let threads = world.threads();
    assert_eq!(threads.len(), 2, "one for each file");
    threads.into_iter().for_each(|thread| thread());
    assert_eq!(world.done(), ["a", "b", "d", "c"]);
    assert!(world.is_empty());
}

/// proves: NFS3-FAIR-a
#[test]
fn what_looks_at_names_has_threads_that_nothing_else_takes() {
    let world = World::new(8);
    for _ in 0..100 {
        for client in 1..=3 {
            world.give(client, Lane::Data, None, "data");
        }
    }
    let data = world.threads();
    assert_eq!(data.len(), 6, "three quarters of the threads");
    world.give(1, Lane::Look, None, "look");
    let mut threads = world.threads();
    assert_eq!(threads.len(), 1, "although that client has data waiting");
    threads.remove(0)();
    assert_eq!(world.done()[0], "look");
}

/// proves: NFS3-FAIR-b
#[test]
fn one_client_leaves_a_quarter_of_a_lanes_threads_to_others() {
    let world = World::new(16);
    for _ in 0..100 {
        world.give(1, Lane::Data, None, "flood");
    }
    let flood = world.threads();
    assert_eq!(flood.len(), 9, "of twelve");
    world.give(2, Lane::Data, None, "other");
    assert_eq!(world.threads().len(), 1, "which begins at once");
    let looks = World::new(16);
    for _ in 0..100 {
        looks.give(1, Lane::Look, None, "flood");
    }
    let looking = looks.threads();
    assert_eq!(looking.len(), 12, "of sixteen");
    let both = World::new(16);
    for _ in 0..100 {
        both.give(1, Lane::Data, None, "flood");
        both.give(1, Lane::Look, None, "flood");
    }
    let mixed = both.threads();
    assert_eq!(mixed.len(), 12, "however they are mixed");
    both.give(2, Lane::Look, None, "other");
    both.give(2, Lane::Data, None, "other");
    assert_eq!(both.threads().len(), 2);
}

/// A client that has used up its share of the threads keeps no other client from a file.
/// proves: NFS3-FAIR-b
#[test]
fn who_waits_for_a_thread_has_no_files_turn() {
    let world = World::new(16);
    for _ in 0..9 {
        world.give(1, Lane::Data, None, "slow");
    }
    for _ in 0..50 {
        world.give(1, Lane::Data, Some(1), "attacker");
    }
    let slow = world.threads();
    assert_eq!(slow.len(), 9);
    world.give(2, Lane::Data, Some(1), "victim");
    let threads = world.threads();
    assert_eq!(threads.len(), 1, "the victim begins");
    threads.into_iter().for_each(|thread| thread());
    assert_eq!(world.done(), ["victim"]);
    // While the file is changed, too: the next change is the victim's, not one of a client that may have no thread.
    world.give(3, Lane::Data, Some(1), "third");
    let mut third = world.threads();
    for _ in 0..50 {
        world.give(1, Lane::Data, Some(1), "attacker");
    }
    world.give(2, Lane::Data, Some(1), "victim");
    assert_eq!((third.len(), world.threads().len()), (1, 0));
    third.remove(0)();
    assert_eq!(world.done()[..2], ["third", "victim"]);
    slow.into_iter().for_each(|thread| thread());
    assert!(world.is_empty());
}

/// A job that ends may have blocked two: one by its client's share, another by its lane.
#[test]
fn what_ends_lets_all_begin_that_may() {
    let world = World::new(8);
    for _ in 0..5 {
        world.give(1, Lane::Data, None, "a");
    }
    for _ in 0..2 {
        world.give(1, Lane::Look, None, "a looks");
    }
    for _ in 0..3 {
        world.give(2, Lane::Data, None, "b");
    }
    let mut threads = world.threads();
    assert_eq!(threads.len(), 7, "five of the first's data, of which one client has at most five, one look, one of b");
    let waiting = {
        let state = world.queue.state();
        (state.running.all, state.running.data)
    };
    assert_eq!(waiting, (7, 6));
    threads.remove(0)();
    assert!(world.queue.state().begin(&world.queue.limits).is_none(), "all that may has begun");
}

/// proves: NFS3-FAIR-b
#[test]
fn clients_have_their_turns_however_much_one_has_waiting() {
    let world = World::new(1);
    for _ in 0..50 {
        world.give(1, Lane::Data, Some(1), "flood");
    }
    world.give(2, Lane::Data, None, "other");
    world.give(3, Lane::Data, Some(1), "same file");
    for thread in world.threads() {
        thread();
    }
    let done = world.done();
    let at = |name| done.iter().position(|done| *done == name).unwrap();
    assert_eq!(done.len(), 52);
    assert!(at("other") <= 2 && at("same file") <= 4, "{:?}", &done[..8]);
    assert!(world.is_empty());
}

#[test]
fn what_follows_a_change_runs_beside_the_next_change() {
    let world = World::new(8);
    let (wait, waiting) = channel::<()>();
    let told = world.told.clone();
    let work = Box::new(move || {
        let after: After = Box::new(move || {
            waiting.recv().unwrap();
            told.send("after").unwrap();
        });
        Some(after)
    });
    world.queue.run(origin(1), Job::new(Lane::Data, Some(file(1)), work));
    world.give(1, Lane::Data, Some(1), "next");
    let first = std::thread::spawn(world.threads().remove(0));
    while world.workers.kept.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    world.threads().remove(0)();
    assert_eq!(world.done(), ["next"]);
    wait.send(()).unwrap();
    first.join().unwrap();
    assert_eq!(world.done(), ["after"]);
    assert!(world.is_empty());
}

#[test]
fn a_panic_fails_one_job_and_the_file_goes_on() {
    let world = World::new(1);
    world.queue.run(origin(1), Job::new(Lane::Data, Some(file(1)), Box::new(|| panic!("a fault in a job"))));
    world.give(1, Lane::Data, Some(1), "same file");
    world.give(1, Lane::Look, None, "look");
    let thread = world.threads().remove(0);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(thread)).is_err());
    for thread in world.threads() {
        thread();
    }
    assert_eq!(world.done().len(), 2);
    assert!(world.is_empty());
}

#[test]
fn a_job_that_the_program_drops_takes_along_what_waits() {
    let world = World::new(1);
    for turn in [Some(1), Some(1), None, Some(2)] {
        world.give(1, Lane::Data, turn, "never");
    }
    drop(world.threads());
    assert!(world.is_empty());
    let World { told, done, .. } = world;
    drop(told);
    assert_eq!(done.iter().count(), 0, "nobody waits for what will not come");
}

#[test]
fn a_program_without_threads_of_its_own_has_everything_at_once() {
    let queue = Queue::in_place();
    let (told, done) = channel();
    for client in 0..100 {
        let told = told.clone();
        let work = Box::new(move || {
            told.send(client).unwrap();
            None
        });
        queue.run(origin(client), Job::new(Lane::Data, None, work));
    }
    assert_eq!(done.try_iter().count(), 100);
}

#[test]
fn however_few_threads_there_are_each_lane_has_one() {
    for threads in 0..40 {
        let limits = Limits::of(threads);
        assert!(limits.data >= 1 && limits.data_of_client >= 1 && limits.all_of_client >= 1);
        assert!(threads < 2 || limits.data < limits.all, "{threads}");
        assert!(limits.data <= limits.all && limits.all_of_client <= limits.all);
        assert!(threads < 4 || limits.all_of_client < limits.all, "{threads}");
    }
}

#[test]
fn what_is_asked_is_told_and_what_is_dropped_is_told_too() {
    let world = World::new(1);
    let mut first = world.queue.ask(origin(1), || 1);
    let mut second = world.queue.ask(origin(1), || 2);
    assert!(first.try_recv().is_err(), "nobody has worked");
    world.threads().into_iter().for_each(|thread| thread());
    assert_eq!((first.try_recv(), second.try_recv()), (Ok(1), Ok(2)));
    let mut lost = world.queue.ask(origin(1), || 3);
    drop(world.threads());
    assert_eq!(lost.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    assert!(world.is_empty());
}

/// A call of these jobs, each of which changes a file.
async fn jobs(queue: Arc<Queue>, told: Sender<&'static str>, files: Vec<(u8, &'static str)>) -> usize {
    let count = files.len();
    for (number, name) in files {
        let (sender, receiver) = oneshot::channel();
        let told = told.clone();
        let work = Box::new(move || {
            told.send(name).unwrap();
            let _ = sender.send(());
            None
        });
        queue.run(origin(1), Job::new(Lane::Data, Some(file(number)), work));
        receiver.await.unwrap();
    }
    count
}

impl World {
    /// Carries a call of the first client's jobs, up to where it waits for a thread.
    fn carry(&self, files: &[(u8, &'static str)]) -> (Pending, std::sync::mpsc::Receiver<Option<usize>>) {
        self.carry_in(None, files)
    }

    /// The same for a call that changes a directory.
    fn carry_in(
        &self,
        directory: Option<u8>,
        files: &[(u8, &'static str)],
    ) -> (Pending, std::sync::mpsc::Receiver<Option<usize>>) {
        let (queue, jobs) = (self.queue.clone(), jobs(self.queue.clone(), self.told.clone(), files.to_vec()));
        let (sender, result) = channel();
        let mut call: Pending = Box::pin(async move {
            let carried = queue.carry(origin(1), directory.map(file), Box::pin(jobs)).await;
            sender.send(carried).unwrap();
        });
        assert!(poll(&mut call).is_pending());
        (call, result)
    }

    fn run_all(&self) -> usize {
        let mut count = 0;
        loop {
            let threads = self.threads();
            if threads.is_empty() {
                return count;
            }
            count += threads.len();
            threads.into_iter().for_each(|thread| thread());
        }
    }
}

type Pending = rpcrdma_env::BoxFuture<'static, ()>;

fn poll(call: &mut Pending) -> std::task::Poll<()> {
    call.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}

#[test]
fn a_call_of_several_jobs_takes_one_thread() {
    let world = World::new(8);
    let (mut call, result) = world.carry(&[(1, "a"), (2, "b"), (1, "c")]);
    assert_eq!(world.run_all(), 1);
    assert_eq!(world.done(), ["a", "b", "c"]);
    assert!(poll(&mut call).is_ready());
    assert_eq!(result.recv(), Ok(Some(3)));
    assert!(world.is_empty());
}

#[test]
fn a_call_that_waits_for_a_file_leaves_its_thread() {
    let world = World::new(8);
    // A change of the second file by another client is under way.
    world.give(2, Lane::Data, Some(2), "other");
    let others = world.threads();
    let (mut call, result) = world.carry(&[(1, "a"), (2, "b"), (3, "c")]);
    assert_eq!(world.run_all(), 1);
    assert_eq!(world.done(), ["a"]);
    // Its asker waits for it.
    assert!(poll(&mut call).is_pending());
    assert_eq!(world.run_all(), 0, "nothing can be done before the file is free");
    others.into_iter().for_each(|thread| thread());
    assert_eq!(world.done(), ["other", "b"]);
    assert!(poll(&mut call).is_pending(), "each job has a turn of its own now");
    assert_eq!(world.run_all(), 1);
    assert!(poll(&mut call).is_ready());
    assert_eq!((world.done(), result.recv()), (vec!["c"], Ok(Some(3))));
    assert!(world.is_empty());
}

/// proves: NFS3-FAIR-a
#[test]
fn a_call_of_many_jobs_does_not_pass_others() {
    // The only thread does the call's first job.
    let world = World::new(1);
    let (mut call, result) = world.carry(&[(1, "a"), (2, "b")]);
    let first = world.threads();
    world.give(2, Lane::Data, None, "other");
    first.into_iter().for_each(|thread| thread());
    assert_eq!(world.done(), ["other", "a"], "what waits comes before the call's first job");
    assert!(poll(&mut call).is_pending(), "each job has a turn of its own now");
    assert_eq!(world.run_all(), 1);
    assert!(poll(&mut call).is_ready());
    assert_eq!((world.done(), result.recv()), (vec!["b"], Ok(Some(2))));
    let many: Vec<_> = (0..40).map(|number| (number, "job")).collect();
    let (mut call, result) = world.carry(&many);
    assert_eq!(world.run_all(), 1);
    assert_eq!(world.done().len(), 17, "those that may be done together, and one that has waited for its turn");
    while poll(&mut call).is_pending() {
        world.run_all();
    }
    assert_eq!((world.done().len(), result.recv()), (23, Ok(Some(40))));
}

#[test]
fn a_call_that_panics_fails_alone() {
    let world = World::new(8);
    let queue = world.queue.clone();
    let mut call: Pending = Box::pin(async move {
        let panics: rpcrdma_env::BoxFuture<'static, ()> = Box::pin(async { panic!("on purpose") });
        assert_eq!(queue.carry(origin(1), None, panics).await, None);
    });
    assert!(poll(&mut call).is_pending());
    let thread = world.threads().remove(0);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(thread)).is_err());
    assert!(poll(&mut call).is_ready());
    assert!(world.is_empty());
    // The thread carries nothing any more.
    world.give(1, Lane::Data, None, "next");
    assert_eq!((world.done(), world.run_all(), world.done()), (vec![], 1, vec!["next"]));
}

#[test]
fn what_a_carried_call_changes_nobody_else_changes_meanwhile() {
    let world = World::new(8);
    let (queue, told) = (world.queue.clone(), world.told.clone());
    let busy = Arc::new(Mutex::new(None));
    let (seen, of) = (busy.clone(), world.queue.clone());
    let mut call: Pending = Box::pin(async move {
        let one: rpcrdma_env::BoxFuture<'static, ()> = Box::pin(async move {
            let (sender, receiver) = oneshot::channel();
            let asked = of.clone();
            let work = Box::new(move || {
                *seen.lock().unwrap() = Some(asked.state().files.get(&file(1)).is_some_and(|changes| changes.is_busy));
                told.send("changed").unwrap();
                let _ = sender.send(());
                None
            });
            of.run(origin(1), Job::new(Lane::Data, Some(file(1)), work));
            receiver.await.unwrap();
        });
        assert_eq!(queue.carry(origin(1), None, one).await, Some(()));
    });
    assert!(poll(&mut call).is_pending());
    assert_eq!(world.run_all(), 1);
    assert_eq!((*busy.lock().unwrap(), world.done()), (Some(true), vec!["changed"]));
    assert!(poll(&mut call).is_ready());
    assert!(world.is_empty(), "and its turn is over");
}

/// Changes of files in one directory follow each other, and no call goes back in the middle.
#[test]
fn calls_that_change_the_same_directory_follow_each_other_on_one_thread() {
    let world = World::new(8);
    let (mut first, one) = world.carry_in(Some(1), &[(1, "a1"), (2, "a2"), (1, "a3")]);
    let (mut second, two) = world.carry_in(Some(1), &[(1, "b1"), (3, "b2"), (1, "b3")]);
    let threads = world.threads();
    assert_eq!(threads.len(), 1, "who waits for the directory takes no thread");
    threads.into_iter().for_each(|thread| thread());
    assert_eq!(world.done(), ["a1", "a2", "a3", "b1", "b2", "b3"]);
    assert!(poll(&mut first).is_ready() && poll(&mut second).is_ready());
    assert_eq!((one.recv(), two.recv()), (Ok(Some(3)), Ok(Some(3))));
    assert!(world.is_empty());
}

/// A call that waits for the disk does not keep the directory from others.
#[test]
fn a_call_gives_the_directory_up_before_it_waits_for_the_disk() {
    let world = World::new(8);
    let (queue, told) = (world.queue.clone(), world.told.clone());
    let mut call: Pending = Box::pin(async move {
        let of = queue.clone();
        let writes: rpcrdma_env::BoxFuture<'static, ()> = Box::pin(async move {
            let (sender, receiver) = oneshot::channel();
            let work = Box::new(move || {
                told.send("written").unwrap();
                let after: After = Box::new(move || {
                    told.send("on the disk").unwrap();
                    let _ = sender.send(());
                });
                Some(after)
            });
            of.run(origin(1), Job::new(Lane::Data, Some(file(2)), work));
            receiver.await.unwrap();
        });
        assert_eq!(queue.carry(origin(1), Some(file(1)), writes).await, Some(()));
    });
    assert!(poll(&mut call).is_pending());
    world.give(1, Lane::Data, Some(1), "next");
    let first = world.threads();
    assert_eq!(first.len(), 1, "the directory is the call's");
    // On one thread both calls follow each other; the next one got another thread before the wait for the disk.
    first.into_iter().for_each(|thread| thread());
    let next = world.threads();
    assert_eq!((next.len(), world.done()), (1, vec!["written", "on the disk"]));
    next.into_iter().for_each(|thread| thread());
    assert_eq!(world.done(), ["next"]);
    assert!(poll(&mut call).is_ready());
    assert!(world.is_empty());
}

/// proves: NFS3-FAIR-a
#[test]
fn a_call_gives_the_directory_up_when_another_client_wants_it() {
    let world = World::new(8);
    let (mut call, result) = world.carry_in(Some(1), &[(2, "data"), (1, "name")]);
    let first = world.threads();
    world.give(2, Lane::Data, Some(1), "other");
    first.into_iter().for_each(|thread| thread());
    assert_eq!(world.done(), ["data"], "the other's change of the directory comes before the call's");
    assert!(poll(&mut call).is_pending());
    assert_eq!(world.run_all(), 1);
    assert_eq!(world.done(), ["other", "name"]);
    assert!(poll(&mut call).is_ready());
    assert_eq!(result.recv(), Ok(Some(2)));
    assert!(world.is_empty());
}

#[test]
fn a_directorys_turn_ends_with_a_call_that_panics_or_is_dropped() {
    let world = World::new(8);
    for is_dropped in [false, true] {
        let queue = world.queue.clone();
        let mut call: Pending = Box::pin(async move {
            let panics: rpcrdma_env::BoxFuture<'static, ()> = Box::pin(async { panic!("on purpose") });
            assert_eq!(queue.carry(origin(1), Some(file(1)), panics).await, None);
        });
        assert!(poll(&mut call).is_pending());
        let thread = world.threads().remove(0);
        if is_dropped {
            drop(thread);
        } else {
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(thread)).is_err());
        }
        assert!(poll(&mut call).is_ready());
        world.give(1, Lane::Data, Some(1), "next");
        assert_eq!((world.run_all(), world.done()), (1, vec!["next"]));
        assert!(world.is_empty());
    }
}

/// proves: NFS3-FAIR-b
#[test]
fn a_client_takes_a_thread_only_if_one_is_free_for_it() {
    let world = World::new(8);
    let take = |client| world.queue.thread_for(origin(client), Lane::Data);
    // Six threads move data, and one client has at most five of them.
    let mut taken: Vec<_> = (0..5).map(|_| take(1).unwrap()).collect();
    assert!(take(1).is_none(), "it has its share");
    let of_another = take(2).unwrap();
    assert!(take(2).is_none() && take(3).is_none(), "no thread is left");
    // What is taken is as good as under way, and free again without a job.
    world.give(3, Lane::Data, None, "of 3");
    assert!(world.threads().is_empty());
    drop(of_another);
    assert_eq!((world.run_all(), world.done()), (1, vec!["of 3"]));
    let (thread, done) = (taken.pop().unwrap(), Arc::new(Mutex::new(0)));
    thread.run(Box::new({
        let done = done.clone();
        move || {
            *done.lock().unwrap() += 1;
            None
        }
    }));
    assert_eq!((world.run_all(), *done.lock().unwrap()), (1, 1));
    drop(taken);
    assert!(world.is_empty());
}
