//! When a thread wakes a connection for its calls that are done.

use super::*;
use std::task::{Context, Wake, Waker};

/// What has happened, in order: a client's call was done, or its connection was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Done(u8),
    Woken(u8),
    Disk,
}

struct Woken {
    client: u8,
    events: Sender<Event>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.events.send(Event::Woken(self.client)).unwrap();
    }
}

/// Begins a call of a client that changes the first directory; with `waits` it waits for the disk.
fn begin(world: &World, events: &Sender<Event>, client: u8, waits: bool) -> Pending {
    let (queue, told) = (world.queue.clone(), events.clone());
    let of = queue.clone();
    let mut call: Pending = Box::pin(async move {
        let change = async move {
            let (sender, receiver) = oneshot::channel();
            let disk = told.clone();
            let work = Box::new(move || {
                let after: After = Box::new(move || {
                    disk.send(Event::Disk).unwrap();
                    let _ = sender.send(());
                });
                match waits {
                    true => Some(after),
                    false => None,
                }
            });
            of.run(origin(client), Job::new(Lane::Data, Some(file(1)), work));
            // Without a wait for the disk the sender is gone.
            let _ = receiver.await;
            told.send(Event::Done(client)).unwrap();
        };
        assert_eq!(queue.carry(origin(client), Some(file(1)), Box::pin(change)).await, Some(()));
    });
    let waker = Waker::from(Arc::new(Woken { client, events: events.clone() }));
    assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    call
}

/// Counted: eight calls that wait behind each other wake their connection once.
#[test]
fn answers_to_a_client_are_told_together() {
    let (world, (events, seen)) = (World::new(8), channel());
    let mut calls: Vec<_> = (0..10).map(|_| begin(&world, &events, 1, false)).collect();
    assert_eq!(world.run_all(), 1, "one thread");
    let groups = [(8, Event::Done(1)), (8, Event::Woken(1)), (2, Event::Done(1)), (2, Event::Woken(1))];
    let wanted: Vec<_> = groups.into_iter().flat_map(|(count, event)| vec![event; count]).collect();
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), wanted);
    assert!(calls.iter_mut().all(|call| poll(call).is_ready()));
    assert!(world.is_empty());
}

/// proves: NFS3-FAIR-a
#[test]
fn no_answer_waits_for_another_clients_call() {
    let (world, (events, seen)) = (World::new(8), channel());
    let mut calls: Vec<_> = [1, 1, 2, 1, 2, 2].map(|client| begin(&world, &events, client, false)).into();
    world.run_all();
    let (mut untold, mut told) = (Vec::new(), 0);
    for event in seen.try_iter() {
        match event {
            Event::Done(client) => untold.push(client),
            Event::Woken(client) => {
                assert!(untold.iter().all(|other| *other == client), "{client} has waited for another");
                untold.remove(0);
                told += 1;
            }
            Event::Disk => panic!("nothing waits for the disk"),
        }
    }
    assert_eq!(told, 6);
    assert!(calls.iter_mut().all(|call| poll(call).is_ready()));
    assert!(world.is_empty());
}

#[test]
fn no_answer_waits_for_the_disk_of_another_call() {
    let (world, (events, seen)) = (World::new(8), channel());
    let mut calls = [false, true].map(|waits| begin(&world, &events, 1, waits));
    world.run_all();
    let wanted = [Event::Done(1), Event::Woken(1), Event::Disk, Event::Done(1), Event::Woken(1)];
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), wanted);
    assert!(calls.iter_mut().all(|call| poll(call).is_ready()));
    assert!(world.is_empty());
}
