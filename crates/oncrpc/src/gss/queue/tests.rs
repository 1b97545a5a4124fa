//! Which client has its turn, and which job is refused.

use super::*;

/// Keeps the jobs until a test asks for them.
#[derive(Default)]
struct Held(Mutex<VecDeque<Box<dyn FnOnce() + Send>>>);

impl Work for Held {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        self.0.lock().unwrap().push_back(job);
    }
}

impl Held {
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn next(&self) -> Option<Box<dyn FnOnce() + Send>> {
        self.0.lock().unwrap().pop_front()
    }

    /// Does all jobs, also those that come meanwhile.
    fn finish(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }
}

type Log = Arc<Mutex<Vec<(u16, Turn)>>>;

struct House {
    held: Arc<Held>,
    queue: Arc<Queue>,
    log: Log,
}

const BOUNDS: Bounds = Bounds { at_once: 4, at_once_of_client: 2, waiting: 100, waiting_of_client: 40 };

fn client(number: u16) -> ClientNetwork {
    let [high, low] = number.to_be_bytes();
    ClientNetwork::of([10, 0, high, low].into())
}

impl House {
    fn new() -> Self {
        let held = Arc::new(Held::default());
        Self { queue: Queue::new(held.clone(), BOUNDS), held, log: Log::default() }
    }

    fn enter(&self, of: u16, weight: usize) {
        let log = self.log.clone();
        self.queue.enter(client(of), weight, Box::new(move |turn| log.lock().unwrap().push((of, turn))));
    }

    fn log(&self) -> Vec<(u16, Turn)> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    fn done(&self, of: u16) -> usize {
        self.log.lock().unwrap().iter().filter(|entry| **entry == (of, Turn::Comes)).count()
    }
}

#[test]
fn clients_have_their_turns_whatever_one_of_them_has_waiting() {
    let house = House::new();
    (0..40).for_each(|_| house.enter(1, 1));
    assert_eq!(house.held.len(), BOUNDS.at_once_of_client, "others find threads");
    for of in [2, 3, 4, 2, 3, 4] {
        house.enter(of, 1);
    }
    assert_eq!(house.held.len(), BOUNDS.at_once);
    house.held.finish();
    let order: Vec<u16> = house.log().into_iter().map(|(of, _)| of).collect();
    let place = |of: u16| order.iter().rposition(|other| *other == of).unwrap();
    assert_eq!(order.len(), 46);
    assert!([2, 3, 4].into_iter().all(|of| place(of) < 12), "{order:?}");
    assert_eq!(house.queue.len(), 0);
}

/// Two clients with many jobs have all threads: a third client waits for one job of each before its own.
#[test]
fn a_client_has_its_turn_among_others_that_have_all_threads() {
    let house = House::new();
    for of in [1, 2] {
        (0..30).for_each(|_| house.enter(of, 1));
    }
    house.enter(3, 1);
    house.held.finish();
    let order: Vec<u16> = house.log().into_iter().map(|(of, _)| of).collect();
    assert_eq!(order.len(), 61);
    assert!(order.iter().position(|of| *of == 3).unwrap() <= BOUNDS.at_once + 2, "{order:?}");
}

#[test]
fn a_client_whose_jobs_do_not_end_keeps_nobody_waiting() {
    let house = House::new();
    (0..20).for_each(|_| house.enter(1, 1));
    let stuck: Vec<_> = (0..2).map(|_| house.held.next().unwrap()).collect();
    (0..20).for_each(|_| house.enter(2, 1));
    house.held.finish();
    assert_eq!((house.done(1), house.done(2), house.queue.len()), (0, 20, 18));
    stuck.into_iter().for_each(|job| job());
    house.held.finish();
    assert_eq!(house.done(1), 20);
}

#[test]
fn what_waits_is_bounded_for_a_client() {
    let house = House::new();
    // Two run.
    (0..42).for_each(|_| house.enter(1, 1));
    assert_eq!((house.log(), house.queue.len()), (vec![], 40), "at the limit");
    house.enter(1, 1);
    assert_eq!((house.log(), house.queue.len()), (vec![(1, Turn::Never)], 40), "one past it");
    house.enter(2, 41);
    assert_eq!(house.log(), [(2, Turn::Never)], "alone too heavy");
}

#[test]
fn who_has_most_makes_room_for_who_has_less() {
    let house = House::new();
    // Four jobs run, and no further job of these two clients may run.
    for of in [1, 2] {
        (0..2).for_each(|_| house.enter(of, 1));
    }
    (0..4).for_each(|_| house.enter(1, 10));
    (0..3).for_each(|_| house.enter(2, 10));
    (0..3).for_each(|_| house.enter(3, 10));
    assert_eq!((house.log(), house.queue.len()), (vec![], 10), "at the limit of all");
    house.enter(4, 1);
    assert_eq!(house.log(), [(1, Turn::Never)], "who had the most");
    house.enter(4, 10);
    assert_eq!(house.log().len(), 1);
    house.enter(2, 10);
    assert_eq!(house.log(), [(2, Turn::Never)], "who would have the most himself");
    house.held.finish();
    assert_eq!(house.done(4), 2);
    assert_eq!(house.queue.len(), 0);
}

#[test]
fn a_client_without_jobs_any_more_has_no_turn() {
    let house = House::new();
    for of in [1, 2] {
        (0..2).for_each(|_| house.enter(of, 1));
    }
    house.enter(3, 40);
    house.enter(4, 39);
    house.enter(5, 30);
    assert_eq!(house.log(), [(3, Turn::Never)], "its only one");
    house.enter(3, 1);
    house.held.finish();
    assert_eq!([3, 4, 5].map(|of| house.done(of)), [1; 3]);
}

#[test]
fn jobs_that_panic_or_are_dropped_make_room() {
    let house = House::new();
    for of in 1..=4 {
        house.queue.enter(client(of), 1, Box::new(|_| panic!("a job's own")));
    }
    house.enter(5, 1);
    drop(house.held.next());
    for _ in 0..3 {
        let job = house.held.next().unwrap();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).unwrap_err();
    }
    house.held.finish();
    assert_eq!(house.done(5), 1);
}
