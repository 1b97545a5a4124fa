//! A slow peer, and one that stalls in either direction or both: it gets its data in the end, the server frees what it
//! held when it stalls, and others do not notice.

use super::{Job, faults_copying};
use crate::interop::{
    context::Context,
    flavour,
    middlebox::{Cut, End, Middlebox, Part, Place, Way},
    serve::{ServeOptions, Server},
};
use anyhow::{bail, ensure};
use faults_copying::Held;
use std::{
    fs,
    time::{Duration, Instant},
};

pub(super) const JOB: Job = Job {
    name: "faults-slow",
    about: "a client behind a slow path, then one that stalls one way, the other, both: dropped in time, its data identical, others unhindered",
    seconds: 300,
    guests: 1,
    scales: false,
    flavours: flavour::ONE,
    run,
};

/// The value of `serve --stall-timeout` here, in seconds.
const STALL: u64 = 3;

/// All Read chunks of a call together may take twice the time-out; data in the sockets' buffers take some seconds more.
const FREED_WITHIN: Duration = Duration::from_secs(2 * STALL + 5);

/// Where the client stalls: while it owes the answer to an RDMA Read (in one direction or both), and while the server
/// sends it what it reads.
const STALLS: [(Way, Part, End); 3] = [
    (Way::Up, Part::ReadResponse, End::Stall),
    (Way::Down, Part::Write, End::Stall),
    (Way::Up, Part::ReadResponse, End::StallBoth),
];

/// What the guest reads in one command. It reads directly, so all READs of the command are under way together, and
/// their data are far more than the sockets of server and middlebox hold.
const OCTETS: usize = 4_000_000;

/// A stall at the end of such a command is one that no server can see, because the middlebox's socket has acknowledged
/// the rest. Then the job stalls the client again.
const ATTEMPTS: usize = 3;

/// A slow path, in bytes a second: the four WRITEs of 1 MiB that the guest has under way take more than three seconds
/// together. Their time is twice [`STALL`].
const SLOW: u64 = 1_200_000;

/// How long the path is slow.
const SLOW_FOR: Duration = Duration::from_secs(8);

/// A decent client beside it copies [`OTHERS_OCTETS`] both ways within this, command by command.
const OTHERS_WITHIN: Duration = Duration::from_secs(5);
const OTHERS_OCTETS: usize = 8 << 20;

/// Linux connects again at once, then after 5 s, then after 10 s more.
const BACK_WITHIN: Duration = Duration::from_secs(25);

fn run(context: &Context) -> anyhow::Result<()> {
    let options = ServeOptions::new(context.folder("export")?);
    let server = context.serve(options.argument("--stall-timeout").argument(STALL.to_string()))?;
    let middlebox = Middlebox::before(server.port())?;
    let guest = faults_copying::guest(OCTETS, 3).set("DIRECT", 1).capture();
    let mut guest = context.boot(guest.mounts_at(middlebox.port(), server.mount_port(), "/"))?;
    guest.wait_for_mark("copying")?;
    let answered = || -> anyhow::Result<f64> { Ok(server.metrics()?.sum("rpcrdma_calls_total", &["status=\"OK\""])) };

    middlebox.slow(Some(SLOW));
    let (begin, calls) = (Instant::now(), answered()?);
    others_work(context, &server)?;
    std::thread::sleep(SLOW_FOR.saturating_sub(begin.elapsed()));
    let during = answered()? - calls;
    ensure!(
        middlebox.accepted() == 1,
        "the server dropped a client that was slow only; see {}",
        server.log().display()
    );
    context.note(format!("{during} calls at {SLOW} bytes a second, on one connection"));
    middlebox.slow(None);

    for (way, part, end) in STALLS {
        let connections = middlebox.accepted();
        let order = Cut { way, place: Place::Inside(part), skip: 3, end };
        let took = stall(context, &server, &middlebox, order)?;
        context.wait_for("what the stalled client held is free", Duration::from_secs(2), || is_free(&server))?;
        context.note(format!("{order}: dropped after {:.1} s", took.as_secs_f64()));
        others_work(context, &server)?;
        middlebox.go_on();
        context.wait_for("the client has connected again", BACK_WITHIN, || Ok(middlebox.accepted() > connections))?;
        let calls = answered()?;
        context.wait_for("the client works again", BACK_WITHIN, || Ok(answered()? > calls + 5.0))?;
    }
    let (_, longest) = faults_copying::finish(context, guest, &server)?;
    context.note(format!("the longest command took {:.1} s", longest.as_secs_f64()));
    server.finish()?;
    Ok(())
}

/// Stalls the client and waits until the server has dropped it for that. Returns how long that took.
fn stall(context: &Context, server: &Server, middlebox: &Middlebox, order: Cut) -> anyhow::Result<Duration> {
    let seen = || -> anyhow::Result<f64> { Ok(faults_copying::ended_for(&server.metrics()?, "stalled")) };
    let before = seen()?;
    for _ in 0..ATTEMPTS {
        middlebox.cut(order);
        context.wait_for(&format!("{order}"), BACK_WITHIN, || Ok(middlebox.is_done()))?;
        let begin = Instant::now();
        let result = context.wait_for(&format!("the server sees it: {order}"), FREED_WITHIN, || Ok(seen()? > before));
        match result {
            Ok(()) => return Ok(begin.elapsed()),
            Err(_) if has_nothing_to_send(server)? => {
                context.note(format!("{order}: the sockets held all that the server sent"))
            }
            Err(error) => return Err(error),
        }
        middlebox.go_on();
    }
    bail!("{order}: {ATTEMPTS} times the sockets held all that the server sent")
}

/// Whether the client's connection stands, and nothing waits to be sent on it. A connection that has ended for another
/// reason is a mistake.
fn has_nothing_to_send(server: &Server) -> anyhow::Result<bool> {
    Ok(Held::by(server)?.connections == 1.0 && is_free(server)?)
}

/// Whether the server holds neither a call nor memory for a client.
fn is_free(server: &Server) -> anyhow::Result<bool> {
    let held = Held::by(server)?;
    Ok(held.calls == 0.0 && held.memory == 0.0)
}

/// Our own client works meanwhile, without the middlebox.
fn others_work(context: &Context, server: &Server) -> anyhow::Result<()> {
    let file = context.dir().join("others");
    fs::write(&file, crate::numbers::Numbers(context.seed()).octets(OTHERS_OCTETS))?;
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let back = context.dir().join("others-back");
    let begin = Instant::now();
    context.rpcrdma("others-put", ["put", "-q", &text(&file), &server.url("others")])?.expect_success()?;
    context.rpcrdma("others-get", ["get", "-q", &server.url("others"), &text(&back)])?.expect_success()?;
    let took = begin.elapsed();
    ensure!(fs::read(&file)? == fs::read(&back)?, "another client got other bytes than it put");
    for path in [&file, &back] {
        fs::remove_file(path)?;
    }
    context.note(format!("another client: {:.1} s for both ways", took.as_secs_f64()));
    ensure!(took < OTHERS_WITHIN, "another client took {took:?} beside it");
    Ok(())
}
