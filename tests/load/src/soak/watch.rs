//! Looks at the server from outside while the others work, makes quiet points now and then, and kills the server if the
//! arguments say so.

use super::{
    Arguments, QUIET_EVERY, QUIET_PATIENCE, QUIET_POINTS, SAMPLE_INTERVAL, Scene, TELL_INTERVAL, report::Point,
};
use crate::{resources::Resources, server::Place};
use std::{
    net::SocketAddr,
    sync::{PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

/// How many sockets the server may have beyond those before the first connection and one for each decent client: a
/// thread's runtime opens some when it first needs them.
const SPARE_SOCKETS: u64 = 2;
/// How long nothing is under way before we look at the server.
const SETTLING: Duration = Duration::from_millis(700);
/// How long a killed server stays away.
const AWAY: Duration = Duration::from_millis(300);
/// When the first quiet point is: before that, all connect.
const FIRST_QUIET: Duration = Duration::from_secs(3);

pub(super) async fn conduct(place: &Place, at: (SocketAddr, SocketAddr), arguments: &Arguments, scene: &Scene) {
    let begin = Instant::now();
    let end = begin + arguments.lasts;
    let [least, most] = QUIET_EVERY;
    let every = (arguments.lasts / QUIET_POINTS).clamp(least, most);
    let mut quiet = begin + every.min(FIRST_QUIET);
    let mut tell = begin + TELL_INTERVAL;
    let mut restart = arguments.restart_every.map(|every| begin + every);
    while Instant::now() < end && !scene.is_over() {
        let now = Instant::now();
        if restart.is_some_and(|restart| now >= restart) {
            restart = arguments.restart_every.map(|every| now + every);
            if let Err(error) = again(place, at, scene).await {
                scene.fail(format!("the server does not start again: {error:#}"));
            }
        }
        look(scene);
        if now >= quiet {
            pause(begin, (arguments.clients + arguments.holders) as u64, scene).await;
            quiet = Instant::now() + every;
        }
        if now >= tell {
            tell = now + TELL_INTERVAL;
            scene.report(|report| {
                let last = report.quiet.last().map_or(0, |point| point.resources.anonymous_kib);
                eprintln!(
                    "{:>6.0} s: {} operations, {} hostile peers, {} cuts, {} restarts; {} KiB when quiet",
                    begin.elapsed().as_secs_f64(),
                    report.count(),
                    report.hostile.values().sum::<u64>(),
                    report.cuts,
                    report.restarts,
                    last
                );
            });
        }
        tokio::time::sleep(SAMPLE_INTERVAL.min(end.saturating_duration_since(Instant::now()))).await;
    }
    if !scene.is_over() {
        pause(begin, (arguments.clients + arguments.holders) as u64, scene).await;
    }
    scene.report(super::Report::judge);
}

/// Looks at the server, which must be running.
fn look(scene: &Scene) -> Option<Resources> {
    let mut server = scene.server.lock().unwrap_or_else(PoisonError::into_inner);
    let server = server.as_mut()?;
    if let Some(how) = server.ended() {
        scene.fail(format!("the server has ended: {how}"));
        return None;
    }
    match Resources::of(server.pid()) {
        Ok(now) => {
            scene.report(|report| report.peak = report.peak.max(now));
            Some(now)
        }
        Err(error) => {
            scene.fail(format!("the server is not to be seen: {error}"));
            None
        }
    }
}

/// Makes a quiet point: all pause, and we look at the server when it has freed the hostile peers' connections.
async fn pause(begin: Instant, clients: u64, scene: &Scene) {
    scene.quiet.store(true, Ordering::SeqCst);
    match tokio::time::timeout(QUIET_PATIENCE, scene.going.write()).await {
        Err(_) => scene.fail("clients do not come to a pause".to_owned()),
        Ok(_all) => {
            let (Some(pid), most) = (scene.pid(), scene.alone + clients + SPARE_SOCKETS) else { return };
            let gone = tokio::task::spawn_blocking(move || Resources::wait_for_sockets(pid, most, QUIET_PATIENCE));
            let gone = gone.await.is_ok_and(|gone| gone.unwrap_or(false));
            tokio::time::sleep(SETTLING).await;
            if let Some(resources) = look(scene) {
                let server = scene.report(|report| report.restarts);
                let at_s = begin.elapsed().as_secs_f64();
                scene.report(|report| report.quiet.push(Point { at_s, server, resources }));
                if !gone {
                    scene.fail(format!("{} sockets when all is quiet, {most} are allowed", resources.sockets));
                }
            }
        }
    }
    scene.quiet.store(scene.is_over(), Ordering::SeqCst);
}

/// Kills the server, and starts it at the same addresses. `starts` is even while no server runs.
async fn again(place: &Place, at: (SocketAddr, SocketAddr), scene: &Scene) -> anyhow::Result<()> {
    scene.starts.fetch_add(1, Ordering::SeqCst);
    drop(scene.server.lock().unwrap_or_else(PoisonError::into_inner).take());
    tokio::time::sleep(AWAY).await;
    let server = place.start(Some(at))?;
    *scene.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
    scene.starts.fetch_add(1, Ordering::SeqCst);
    scene.report(|report| report.restarts += 1);
    Ok(())
}
