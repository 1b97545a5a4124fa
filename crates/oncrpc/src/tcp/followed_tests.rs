//! What a call is told of the calls behind it.

use super::*;

/// Notes what each call is told. Calls do not end while it holds them.
#[derive(Clone, Default)]
struct Noting {
    holds: bool,
    told: Arc<Mutex<Vec<bool>>>,
}

impl Handler for Noting {
    fn handle(&self, context: CallContext, _: Stream) -> BoxFuture<'static, Outcome> {
        self.told.lock().unwrap().push(context.is_followed);
        match self.holds {
            true => Box::pin(std::future::pending()),
            false => Box::pin(std::future::ready(Outcome::Nothing)),
        }
    }
}

/// What so many calls are told that come together.
async fn told(holds: bool, calls: usize) -> Vec<bool> {
    let noting = Noting { holds, ..Noting::default() };
    let (mut near, far) = duplex(1 << 16);
    let (_handle, driver) = serve(far, endpoint(), Arc::new(noting.clone()), env().clock, ServerOptions::default());
    // A record of two words, which are those of a call.
    let record = [0x8000_0008_u32, 7, 0].map(u32::to_be_bytes).concat();
    near.write_all(&record.repeat(calls)).await.unwrap();
    drop(near);
    let _ = timeout(Duration::from_secs(1), driver).await;
    noting.told.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_call_is_told_whether_the_next_has_come() {
    assert_eq!(told(false, 1).await, [false]);
    assert_eq!(told(false, 4).await, [true, true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn few_calls_are_told_so_while_others_are_under_way() {
    assert_eq!(told(true, 5).await, [true, true, false, false, false]);
}
