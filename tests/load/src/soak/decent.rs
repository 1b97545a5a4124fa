//! Decent clients: each works in a directory of its own, and knows what must be there.

use super::{Scene, files, files::Files};
use crate::{clients::CALL_LIMIT, server::Place};
use anyhow::{Context as _, bail, ensure};
use rpcrdma_env::{Random as _, SeededRandom};
use rpcrdma_nfs::attr::NewAttributes;
use rpcrdma_nfs_client::{Access, CreateHow, File, Files as Server, Found, Handle, Name, Reader, Transfer, Writer};
use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    process::Command,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// Bytes of a block, and the number of calls under way, of reads and writes.
const BLOCK: u32 = 32 << 10;
const DEPTH: usize = 3;
/// The longest pause between operations.
const PAUSE: Duration = Duration::from_millis(20);
/// The most bytes of the file that the command copies.
const COPIED_BYTES: u64 = 3 << 20;
/// The command's pause between copies.
const COPY_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Decent {
    number: usize,
    nfs: Server,
    directory: Handle,
    transfer: Transfer,
    random: SeededRandom,
    files: Files,
}

impl Decent {
    /// Makes a client and its directory.
    pub(super) async fn new(number: usize, nfs: Server, root: Handle, scene: &Scene) -> anyhow::Result<Self> {
        let name = Name::from(format!("client-{number}").as_str());
        let attributes = NewAttributes { mode: Some(0o777), ..NewAttributes::default() };
        let directory = nfs.mkdir(&root, &name, attributes).await?.file;
        let transfer = nfs.transfer(&root).await?;
        let random = SeededRandom::new(scene.seed ^ (number as u64) << 32);
        Ok(Self { number, nfs, directory, transfer, random, files: Files::default() })
    }

    /// Works until the end.
    pub(super) async fn work(mut self, scene: Arc<Scene>) {
        while !scene.is_over() {
            let going = scene.going.read().await;
            let kind = self.random.below(100);
            let begin = Instant::now();
            let done = tokio::time::timeout(CALL_LIMIT, self.operation(kind)).await;
            let took = begin.elapsed();
            match done {
                Ok(Ok(what)) => scene.report(|report| report.done(what, took)),
                Ok(Err(error)) => return scene.fail(format!("client {}: {error:#}", self.number)),
                Err(_) => return scene.fail(format!("client {} starves: nothing for {took:?}", self.number)),
            }
            drop(going);
            tokio::time::sleep(PAUSE.mul_f64(self.random.below(1000) as f64 / 1000.0)).await;
        }
    }

    async fn operation(&mut self, kind: u64) -> anyhow::Result<&'static str> {
        let some = self.files.some(&self.random);
        Ok(match (kind, some) {
            (0..20, _) | (_, None) => {
                self.write(Files::any(&self.random)).await.context("writing").map(|()| "write")?
            }
            (20..35, Some(name)) => self.read(&name).await.context("reading").map(|()| "read")?,
            (35..65, Some(name)) => self.read_part(&name).await.context("reading a part").map(|()| "read a part")?,
            (65..72, Some(name)) => self.rename(name).await.context("renaming").map(|()| "rename")?,
            (72..79, Some(name)) => self.remove(name).await.context("removing").map(|()| "remove")?,
            (79..85, _) => self.list().await.context("listing").map(|()| "list")?,
            (85..88, Some(name)) => self.cut(&name).await.context("truncating").map(|()| "truncate")?,
            (_, Some(name)) => self.look(&name).await.context("attributes").map(|()| "attributes")?,
        })
    }

    async fn find(&self, name: &str) -> anyhow::Result<Found> {
        self.nfs.lookup(&self.directory, &Name::from(name)).await.with_context(|| name.to_owned())
    }

    async fn open(&self, name: &str, access: Access) -> anyhow::Result<File> {
        let opened = self.nfs.open_at(&self.directory, &Name::from(name), access).await;
        opened.with_context(|| name.to_owned())
    }

    /// Writes a new file, or into an existing one.
    async fn write(&mut self, name: String) -> anyhow::Result<()> {
        let octets = files::octets(&self.random);
        let (data, len) = (files::data(&self.random, octets), self.files.range(&name, 0, u32::MAX).len() as u64);
        let offset = self.random.below(len + 1).min(files::MAX_OCTETS - octets.min(files::MAX_OCTETS));
        let how = CreateHow::Unchecked(NewAttributes { mode: Some(0o666), ..NewAttributes::default() });
        let file = self.nfs.create(&self.directory, &Name::from(name.as_str()), how).await?.file;
        let mut writer = Writer::new(file.clone(), BLOCK, DEPTH);
        writer.write(offset, data.clone()).await?;
        writer.finish().await?;
        file.close().await?;
        self.files.put(&name, offset as usize, &data);
        Ok(())
    }

    async fn read(&mut self, name: &str) -> anyhow::Result<()> {
        let file = self.open(name, Access::Read).await?;
        let mut reader = Reader::new(file.clone(), 0, u64::MAX, BLOCK, DEPTH);
        let mut octets = Vec::new();
        while let Some(block) = reader.next().await? {
            octets.extend_from_slice(&block.data);
        }
        file.close().await?;
        same(name, 0, &octets, self.files.range(name, 0, u32::MAX))
    }

    async fn read_part(&mut self, name: &str) -> anyhow::Result<()> {
        let file = self.open(name, Access::Read).await?;
        let offset = self.random.below(self.files.range(name, 0, u32::MAX).len() as u64 + 1);
        let count = (files::octets(&self.random) as u32).min(self.transfer.read);
        let read = file.read(offset, count).await?;
        file.close().await?;
        same(name, offset, &read.data, self.files.range(name, offset, count))
    }

    async fn rename(&mut self, from: String) -> anyhow::Result<()> {
        let to = Files::any(&self.random);
        if from == to {
            return Ok(());
        }
        let (old, new) = (Name::from(from.as_str()), Name::from(to.as_str()));
        self.nfs.rename(&self.directory, &old, &self.directory, &new).await?;
        let data = self.files.0.remove(&from).unwrap_or_default();
        self.files.0.insert(to, data);
        Ok(())
    }

    async fn remove(&mut self, name: String) -> anyhow::Result<()> {
        self.nfs.remove(&self.directory, &Name::from(name.as_str())).await?;
        self.files.0.remove(&name);
        match self.nfs.lookup(&self.directory, &Name::from(name.as_str())).await {
            Err(error) if error.is_absent() => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => bail!("{name} is there after it was removed"),
        }
    }

    async fn list(&mut self) -> anyhow::Result<()> {
        let mut listing = self.nfs.list(&self.directory, self.transfer);
        let mut names = BTreeSet::new();
        while let Some(entry) = listing.next().await? {
            let name = String::from_utf8_lossy(entry.name.as_slice()).into_owned();
            ensure!(names.insert(name.clone()), "{name} is listed twice");
        }
        let expected: BTreeSet<String> = self.files.0.keys().cloned().collect();
        ensure!(names == expected, "listed {names:?}, expected {expected:?}");
        Ok(())
    }

    async fn cut(&mut self, name: &str) -> anyhow::Result<()> {
        let len = self.files.range(name, 0, u32::MAX).len() as u64;
        let size = self.random.below(len + 1);
        let attributes = NewAttributes { size: Some(size), ..NewAttributes::default() };
        let file = self.open(name, Access::Write).await?;
        file.setattr(attributes).await?;
        file.close().await?;
        if let Some(file) = self.files.0.get_mut(name) {
            file.truncate(size as usize);
        }
        Ok(())
    }

    async fn look(&mut self, name: &str) -> anyhow::Result<()> {
        let attributes = self.nfs.getattr(&self.find(name).await?.file).await?;
        let expected = self.files.range(name, 0, u32::MAX).len() as u64;
        ensure!(attributes.size == expected, "{name} has {} bytes, expected {expected}", attributes.size);
        Ok(())
    }
}

/// Compares bytes; the error says where they differ first.
fn same(name: &str, offset: u64, found: &[u8], expected: &[u8]) -> anyhow::Result<()> {
    if found == expected {
        return Ok(());
    }
    let same = found.iter().zip(expected).take_while(|(a, b)| a == b).count() as u64;
    bail!(
        "{name} differs from byte {} on: {} bytes from {offset} on, expected {}",
        offset + same,
        found.len(),
        expected.len()
    )
}

/// A client that is a process: copies a file there and back with the command, in either version, and compares.
pub(super) async fn command(place: Place, (rdma, mount): (SocketAddr, SocketAddr), scene: Arc<Scene>) {
    let random = SeededRandom::new(!scene.seed);
    let (out, back) = (place.folder.join("out"), place.folder.join("back"));
    let mut version = 1;
    while !scene.is_over() {
        let going = scene.going.read().await;
        version = 3 - version;
        let url = format!("nfs://{rdma}/copied?mountport={}&rpcrdma={version}", mount.port());
        let copied = {
            let (out, back, program) = (out.clone(), back.clone(), place.program.clone());
            let octets = files::data(&random, 1 + random.below(COPIED_BYTES));
            tokio::task::spawn_blocking(move || -> anyhow::Result<()> {
                fs::write(&out, &octets)?;
                let run = |command: &mut Command| -> anyhow::Result<()> {
                    let output = command.output()?;
                    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
                    Ok(())
                };
                run(Command::new(&program).arg("put").arg(&out).arg(&url)).context("put")?;
                let _ = fs::remove_file(&back);
                run(Command::new(&program).arg("get").arg(&url).arg(&back)).context("get")?;
                same("copied", 0, &fs::read(&back)?, &octets)
            })
        };
        let (begin, starts) = (Instant::now(), scene.starts.load(Ordering::SeqCst));
        match tokio::time::timeout(2 * CALL_LIMIT, copied).await {
            Ok(Ok(Ok(()))) => scene.report(|report| report.done("copy by the command", begin.elapsed())),
            // While no server runs, the command fails at once instead of waiting.
            Ok(Ok(Err(_))) if starts != scene.starts.load(Ordering::SeqCst) || starts.is_multiple_of(2) => {}
            Ok(Ok(Err(error))) => return scene.fail(format!("the command: {error:#}")),
            Ok(Err(error)) => return scene.fail(format!("the command: {error}")),
            Err(_) => return scene.fail("the command starves".to_owned()),
        }
        drop(going);
        tokio::time::sleep(COPY_PAUSE).await;
    }
}
