//! A host with a client of ours: its transport, its driver, its callbacks, and callers that share it.

use super::caller::{Caller, Written};
use crate::{
    lock,
    nfs4::{SERVER, Scene, client_ip, server::ADDRESS},
};
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_nfs::v4::{PROGRAM, VERSION};
use rpcrdma_nfs_client::v4::{CALLBACK_SLOTS, Callbacks, Error, Nfs4, Options};
use rpcrdma_oncrpc::{Client as Rpc, Router, SysAuth, SysCredential};
use rpcrdma_sim::Task;
use rpcrdma_transport::{ClientOptions, Quiet, Reverse, Versions, connect};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// The most callers of a client, and how many operations each does.
const MAX_CALLERS: u64 = 3;
const ROUNDS: (u64, u64) = (3, 9);
/// How long a host waits before it connects again.
const PAUSE: Duration = Duration::from_millis(700);
/// How long the client's orderly end may take.
const GOODBYE: Duration = Duration::from_secs(600);

pub(super) struct Host {
    scene: Scene,
    number: usize,
    random: SeededRandom,
    minor: u32,
    versions: Versions,
    process: Process,
    /// The files that callers have written, for later callers.
    written: Arc<Mutex<Vec<Written>>>,
}

/// Everything that ends with the host's process.
#[derive(Default)]
struct Process {
    nfs: Arc<Mutex<Option<Nfs4>>>,
    /// The drivers of the transport and of the client.
    drivers: Arc<Mutex<Vec<Task<()>>>>,
    callers: Arc<Mutex<Vec<Task<()>>>>,
    start: Option<Task<()>>,
}

impl Host {
    pub(super) fn new(scene: &Scene, number: usize, seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let minor = [0, 1, 2, 2, 2, 2][random.below(6) as usize];
        let versions = if random.below(2) == 0 { Versions::One } else { Versions::Auto };
        scene.tally.count(format!("ours: minor version {minor}"));
        let (scene, written) = (scene.clone(), Arc::default());
        let mut host = Self { scene, number, random, minor, versions, process: Process::default(), written };
        host.start();
        host
    }

    /// Connects, and lets callers do their work.
    fn start(&mut self) {
        let (scene, number, minor, versions) = (self.scene.clone(), self.number, self.minor, self.versions);
        let process = Process::default();
        let (nfs, drivers, callers) = (process.nfs.clone(), process.drivers.clone(), process.callers.clone());
        let written = self.written.clone();
        let plans: Vec<_> = (0..1 + self.random.below(MAX_CALLERS))
            .map(|_| (ROUNDS.0 + self.random.below(ROUNDS.1 - ROUNDS.0), SeededRandom::new(self.random.next_u64())))
            .collect();
        let start = scene.world.clone().spawn(async move {
            let client = client(&scene, number, minor, versions, &drivers).await;
            *lock(&nfs) = Some(client.clone());
            for (index, (rounds, random)) in plans.into_iter().enumerate() {
                let caller = Caller::new(&scene, number, index, client.clone(), random, written.clone());
                lock(&callers).push(scene.world.spawn(caller.run(rounds)));
            }
        });
        self.process = Process { start: Some(start), ..process };
    }

    pub(super) fn is_busy(&self) -> bool {
        let Process { start, callers, .. } = &self.process;
        start.as_ref().is_some_and(|start| !start.is_finished()) || lock(callers).iter().any(|task| !task.is_finished())
    }

    /// The host is cut off for a while. If that is long, the server may take away what it holds.
    pub(super) async fn is_away(&self, lasting: Duration) {
        let Scene { world, checks, tally, .. } = &self.scene;
        let is_long = lasting >= crate::nfs4::LEASE;
        tally.count(if is_long { "ours: away for longer than the lease" } else { "ours: a partition" });
        if is_long {
            checks.note(format!("client {} is away for {lasting:?}", self.number));
            checks.leaves(self.number);
        }
        world.partition(client_ip(self.number), SERVER);
        world.sleep(lasting).await;
        world.heal(client_ip(self.number), SERVER);
    }

    /// The host is killed, and begins again: what it held is free when its lease has ended.
    pub(super) async fn restart(&mut self, away: Duration) {
        let Scene { world, checks, tally, .. } = self.scene.clone();
        tally.count("ours: a client is killed");
        checks.note(format!("client {} is killed", self.number));
        self.kill();
        world.crash(client_ip(self.number));
        world.sleep(away).await;
        world.restart(client_ip(self.number));
        self.start();
    }

    fn kill(&mut self) {
        let Process { nfs, drivers, callers, start } = std::mem::take(&mut self.process);
        start.iter().for_each(Task::abort);
        lock(&callers).drain(..).for_each(|task| task.abort());
        lock(&drivers).drain(..).for_each(|task| task.abort());
        drop(nfs);
        self.scene.checks.forgets_all(self.number);
    }

    /// Checks that all acknowledged bytes are there.
    pub(super) async fn judge_contents(&self) {
        let Some(nfs) = lock(&self.process.nfs).clone() else { return };
        let all = std::mem::take(&mut *lock(&self.written));
        for written in all {
            written.judge(&self.scene, self.number, &nfs).await;
        }
    }

    /// Ends the client in order: the server must not find anything that it has left.
    pub(super) async fn end(&mut self) {
        let Scene { world, checks, .. } = self.scene.clone();
        let number = self.number;
        let nfs = lock(&self.process.nfs).take();
        if let Some(nfs) = nfs {
            let ending = world.spawn(async move { nfs.end().await });
            let until = world.now() + GOODBYE;
            while !ending.is_finished() && world.now() < until {
                world.sleep(PAUSE).await;
            }
            if !ending.is_finished() {
                checks.found(format!("client {number} does not come to its end"));
            } else if let Err(error) = ending.await {
                checks.found(format!("client {number} leaves something: {error}"));
            }
        }
        self.kill();
    }
}

/// A client that has reached the server, with its drivers running.
async fn client(
    scene: &Scene,
    number: usize,
    minor: u32,
    versions: Versions,
    drivers: &Arc<Mutex<Vec<Task<()>>>>,
) -> Nfs4 {
    let (world, env) = (&scene.world, scene.world.env());
    let fabric = Arc::new(world.fabric_with(client_ip(number), scene.config.clone()));
    loop {
        let callbacks = Callbacks::new();
        let handler = Arc::new(Router::new(&env).with_service(callbacks.service()));
        let mut options = ClientOptions::default();
        options.versions = versions;
        options.reverse = Some(Reverse { handler, credits: CALLBACK_SLOTS });
        let Ok((transport, driver)) = connect(fabric.clone(), ADDRESS, &env, options, Arc::new(Quiet)).await else {
            world.sleep(PAUSE).await;
            continue;
        };
        lock(drivers).push(world.spawn(async move {
            let _ = driver.await;
        }));
        let identity = Arc::new(SysAuth::new(SysCredential::default()));
        let rpc = Rpc::new(transport, identity, PROGRAM, VERSION);
        let options = Options::new("simulated").with_minors(minor..=minor).with_callbacks(callbacks);
        match Nfs4::connect(rpc, &env, options).await {
            Ok(nfs) => {
                lock(drivers).push(world.spawn(nfs.driver()));
                return nfs;
            }
            Err(Error::Call { .. }) => world.sleep(PAUSE).await,
            Err(error) => {
                scene.checks.found(format!("client {number} cannot begin: {error}"));
                world.sleep(PAUSE).await;
            }
        }
    }
}
