//! The work of a caller in its directory, and the checks of the answers.
//!
//! While a caller works on a name, it is unknown what the name stands for. If the caller stops in the middle, it stays
//! unknown.

use super::{
    Scene,
    client::{Client, Mounted},
    directory::{Content, Directory},
};
use bytes::Bytes;
use futures_util::future::{Either, select};
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_nfs::attr::{FileType, NewAttributes, Stability};
use rpcrdma_nfs_client::{
    Access, Cause, CreateHow, Error, File, Files, Handle, Name, NodeKind, Reader, Verifier, Writer,
};
use std::{pin::pin, sync::Arc, time::Duration};

/// The file with registers, one behind the other, to which all callers write.
pub(super) const REGISTERS: &str = "registers";
const MAX_REGISTERS: u64 = 3;
const REGISTER_OCTETS: u64 = 8;
/// The most bytes of a file, and the bytes of each call.
const MAX_OCTETS: u64 = 60_000;
const BLOCKS: [u32; 3] = [1_000, 8_192, 40_000];
const MAX_DEPTH: u64 = 4;
/// One operation in so many stops in the middle, after at most so many microseconds.
const LEFT_ONE_IN: u64 = 8;
const MAX_WAIT_MICROS: u64 = 20_000;
/// The longest pause between two operations, in microseconds.
const MAX_PAUSE_MICROS: u64 = 20_000;
/// The longest pause between a write and its COMMIT, in microseconds.
const MAX_UNCOMMITTED_MICROS: u64 = 50_000;
const MODE: u32 = 0o644;

/// A caller.
pub(super) struct Caller {
    scene: Scene,
    mounted: Mounted,
    known: Arc<Directory>,
    /// The handle of its directory.
    directory: Handle,
    random: SeededRandom,
    count: u32,
}

fn mode() -> NewAttributes {
    NewAttributes { mode: Some(MODE), ..NewAttributes::default() }
}

fn named(name: &str) -> Name {
    Name::from(name)
}

impl Caller {
    /// Makes a directory, and works in it.
    pub(super) async fn run(
        scene: Scene,
        client: Arc<Client>,
        known: Arc<Directory>,
        (random, rounds): (SeededRandom, u64),
    ) {
        let checks = scene.checks.clone();
        let mounted = match client.mount(&scene).await {
            Ok(mounted) => mounted,
            Err(error) => return checks.failed(&known.name(), &error),
        };
        let directory = match mounted.files.mkdir(&mounted.root, &named(&known.name()), mode()).await {
            Ok(made) => made.file,
            Err(error) => return checks.failed(&known.name(), &error),
        };
        let mut caller = Self { scene, mounted, known, directory, random, count: 0 };
        for _ in 0..rounds {
            if let Err(error) = caller.act_or_leave().await {
                checks.failed(&caller.known.name(), &error);
            }
        }
    }

    /// Checks through a client that everything known is there.
    pub(super) async fn judge(scene: Scene, client: Client, all: Vec<Arc<Directory>>) {
        let checks = scene.checks.clone();
        let mounted = match client.mount(&scene).await {
            Ok(mounted) => mounted,
            Err(error) => return checks.failed("the judge", &error),
        };
        let mounted = Arc::new(mounted);
        for known in all {
            if let Err(error) = judge_directory(&scene, &mounted.files, &mounted.root, &known).await {
                checks.failed(&format!("the judge of {} in version {}", known.name(), client.version), &error);
            }
        }
    }

    fn files(&self) -> &Files {
        &self.mounted.files
    }

    fn found(&self, text: impl std::fmt::Display) {
        self.scene.checks.found(format!("{}: {text}", self.known.name()));
    }

    fn is_done(&self, what: &str) {
        self.scene.checks.done(what);
    }

    async fn pause(&self, most_micros: u64) {
        self.scene.world.sleep(Duration::from_micros(self.random.below(most_micros))).await;
    }

    async fn act_or_leave(&mut self) -> Result<(), Error> {
        let world = self.scene.world.clone();
        self.pause(MAX_PAUSE_MICROS).await;
        if self.random.below(LEFT_ONE_IN) != 0 {
            return self.act().await;
        }
        let wait = Duration::from_micros(self.random.below(MAX_WAIT_MICROS));
        let tally = self.scene.tally.clone();
        match select(pin!(self.act()), pin!(world.sleep(wait))).await {
            Either::Left((done, _)) => done,
            Either::Right(_) => {
                tally.count("files: a caller goes away in the middle");
                Ok(())
            }
        }
    }

    /// Does one operation. Every error that it returns is a finding.
    async fn act(&mut self) -> Result<(), Error> {
        match self.random.below(23) {
            0..=3 => self.make_file().await,
            4 | 5 => self.write_over().await,
            6 => self.cut().await,
            7 | 8 => self.read_file().await,
            9 | 10 => self.rename().await,
            11 => self.link().await,
            12 | 13 => self.remove().await,
            14 => self.make_symlink().await,
            15 => self.make_directory().await,
            16 => self.make_again().await,
            17 => judge_names(&self.scene, self.files(), &self.directory, &self.known).await,
            18 => self.make_pipe().await,
            19 | 20 => self.read_register().await,
            _ => self.write_register().await,
        }
    }

    fn octets(&self) -> Vec<u8> {
        let (len, with) = (self.random.below(MAX_OCTETS), self.random.next_u64());
        (0..len).map(|at| (at.wrapping_mul(with | 1) >> 5) as u8).collect()
    }

    /// Writes bytes, several calls at a time, and waits until they are durable.
    async fn write(&self, file: File, offset: usize, octets: &[u8]) -> Result<(), Error> {
        let block = BLOCKS[self.random.below(BLOCKS.len() as u64) as usize];
        let writer = Writer::new(file.clone(), block, 1 + self.random.below(MAX_DEPTH) as usize);
        let mut writer = if self.random.below(3) == 0 { writer.durably() } else { writer };
        writer.write(offset as u64, Bytes::copy_from_slice(octets)).await?;
        self.pause(MAX_UNCOMMITTED_MICROS).await;
        writer.finish().await?;
        file.close().await
    }

    async fn make_file(&mut self) -> Result<(), Error> {
        let (name, octets) = (self.known.fresh(), self.octets());
        let how = match self.random.below(3) {
            0 => CreateHow::Unchecked(mode()),
            1 => CreateHow::Guarded(mode()),
            _ => CreateHow::Exclusive(Verifier(self.random.next_u64().to_be_bytes())),
        };
        let file = self.files().create(&self.directory, &named(&name), how).await?.file;
        self.write(file, 0, &octets).await?;
        self.known.is_known(name, Some(Content::File(octets)));
        self.is_done("files: a file is made");
        Ok(())
    }

    /// One of the known files.
    fn some_file(&self) -> Option<(String, Vec<u8>)> {
        match self.known.some(&self.random, |content| matches!(content, Content::File(_)))? {
            (name, Content::File(octets)) => Some((name, octets)),
            _ => None,
        }
    }

    async fn write_over(&mut self) -> Result<(), Error> {
        let Some((name, mut octets)) = self.some_file() else { return Ok(()) };
        let (at, new) = (self.random.below(octets.len() as u64 + 1) as usize, self.octets());
        let file = self.files().open_at(&self.directory, &named(&name), Access::Both).await?;
        self.write(file, at, &new).await?;
        octets.resize(octets.len().max(at + new.len()), 0);
        octets[at..at + new.len()].copy_from_slice(&new);
        self.known.is_known(name, Some(Content::File(octets)));
        self.is_done("files: a file is written over");
        Ok(())
    }

    async fn cut(&mut self) -> Result<(), Error> {
        let Some((name, mut octets)) = self.some_file() else { return Ok(()) };
        let size = self.random.below(MAX_OCTETS);
        let file = self.files().open_at(&self.directory, &named(&name), Access::Both).await?;
        file.setattr(NewAttributes { size: Some(size), ..NewAttributes::default() }).await?;
        file.close().await?;
        octets.resize(size as usize, 0);
        self.known.is_known(name, Some(Content::File(octets)));
        self.is_done("files: a file is cut or extended");
        Ok(())
    }

    async fn read_file(&mut self) -> Result<(), Error> {
        let Some((name, octets)) = self.some_file() else { return Ok(()) };
        self.holds(&name, &octets).await?;
        self.known.is_known(name, Some(Content::File(octets)));
        Ok(())
    }

    async fn holds(&self, name: &str, octets: &[u8]) -> Result<(), Error> {
        let block = BLOCKS[self.random.below(BLOCKS.len() as u64) as usize];
        judge_file(&self.scene, self.files(), (&self.directory, name, octets), block).await
    }

    async fn is_absent(&self, name: &str) -> Result<(), Error> {
        match self.files().lookup(&self.directory, &named(name)).await {
            Err(error) if error.is_absent() => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                self.found(format_args!("{name} is there still"));
                Ok(())
            }
        }
    }

    async fn rename(&mut self) -> Result<(), Error> {
        let Some((name, content)) = self.known.some(&self.random, |_| true) else { return Ok(()) };
        // Now and then the new name replaces another one.
        let other = match self.random.below(3) {
            0 if content != Content::Directory => self.known.some(&self.random, |other| *other != Content::Directory),
            _ => None,
        };
        let to = other.map_or_else(|| self.known.fresh(), |(name, _)| name);
        self.files().rename(&self.directory, &named(&name), &self.directory, &named(&to)).await?;
        self.is_absent(&name).await?;
        if let Content::File(octets) = &content {
            self.holds(&to, octets).await?;
        }
        self.known.is_known(name, None);
        self.known.is_known(to, Some(content));
        self.is_done("files: a name is changed");
        Ok(())
    }

    /// Gives a file a second name, and removes one of the two.
    async fn link(&mut self) -> Result<(), Error> {
        let Some((name, octets)) = self.some_file() else { return Ok(()) };
        let further = self.known.fresh();
        let file = self.files().lookup(&self.directory, &named(&name)).await?.file;
        self.files().link(&file, &self.directory, &named(&further)).await?;
        let links = self.files().getattr(&file).await?.links;
        if links != 2 {
            self.found(format_args!("{name} has {links} names and not two"));
        }
        let (stays, goes) = if self.random.below(2) == 0 { (name, further) } else { (further, name) };
        self.files().remove(&self.directory, &named(&goes)).await?;
        self.is_absent(&goes).await?;
        self.holds(&stays, &octets).await?;
        self.known.is_known(goes, None);
        self.known.is_known(stays, Some(Content::File(octets)));
        self.is_done("files: a file has a further name");
        Ok(())
    }

    async fn remove(&mut self) -> Result<(), Error> {
        let Some((name, content)) = self.known.some(&self.random, |_| true) else { return Ok(()) };
        match content {
            Content::Directory => self.files().rmdir(&self.directory, &named(&name)).await?,
            _ => self.files().remove(&self.directory, &named(&name)).await?,
        }
        self.is_absent(&name).await?;
        self.known.is_known(name, None);
        self.is_done("files: a name is removed");
        Ok(())
    }

    async fn make_symlink(&mut self) -> Result<(), Error> {
        let (name, target) = (self.known.fresh(), format!("{:x}/", self.random.next_u64()).repeat(9));
        let made = self.files().symlink(&self.directory, &named(&name), mode(), target.clone().into()).await?;
        let told = self.files().readlink(&made.file).await?;
        if told != target {
            self.found(format_args!("{name} points to {}", told.escape_ascii()));
        }
        self.known.is_known(name, Some(Content::Symlink(target)));
        self.is_done("files: a symbolic link is made");
        Ok(())
    }

    async fn make_pipe(&mut self) -> Result<(), Error> {
        let name = self.known.fresh();
        self.files().mknod(&self.directory, &named(&name), NodeKind::Fifo, mode()).await?;
        self.known.is_known(name, Some(Content::Pipe));
        self.is_done("files: a named pipe is made");
        Ok(())
    }

    async fn make_directory(&mut self) -> Result<(), Error> {
        let name = self.known.fresh();
        self.files().mkdir(&self.directory, &named(&name), mode()).await?;
        self.known.is_known(name, Some(Content::Directory));
        self.is_done("files: a directory is made");
        Ok(())
    }

    /// Creating a file that must be new fails if the name exists, even if calls were sent again.
    async fn make_again(&mut self) -> Result<(), Error> {
        let Some((name, octets)) = self.some_file() else { return Ok(()) };
        if !octets.is_empty() {
            self.count += 1;
            // No two calls are equal.
            let how = CreateHow::Guarded(NewAttributes { uid: Some(self.count), ..mode() });
            match self.files().create(&self.directory, &named(&name), how).await {
                Err(error) if error.cause() == Some(Cause::Exists) => {}
                Err(error) => return Err(error),
                Ok(_) => self.found(format_args!("{name} is made though it is there")),
            }
            self.holds(&name, &octets).await?;
            self.is_done("files: a file is there already");
        }
        self.known.is_known(name, Some(Content::File(octets)));
        Ok(())
    }

    async fn registers(&self) -> Result<File, Error> {
        self.files().open_at(&self.mounted.root, &named(REGISTERS), Access::Both).await
    }

    async fn read_register(&mut self) -> Result<(), Error> {
        let (register, file) = (self.random.below(MAX_REGISTERS), self.registers().await?);
        let begin = self.scene.checks.begins_to_read();
        let read = file.read(register * REGISTER_OCTETS, REGISTER_OCTETS as u32).await?.data;
        let mut octets = [0; REGISTER_OCTETS as usize];
        octets[..read.len()].copy_from_slice(&read);
        self.scene.checks.read(register, u64::from_be_bytes(octets), begin);
        file.close().await
    }

    /// Writes a unique value, with a durable WRITE, or with an unstable one and a COMMIT.
    async fn write_register(&mut self) -> Result<(), Error> {
        let (register, file) = (self.random.below(MAX_REGISTERS), self.registers().await?);
        let stability = if self.random.below(2) == 0 { Stability::Unstable } else { Stability::FileSync };
        let (value, offset) = (self.random.next_u64() | 1, register * REGISTER_OCTETS);
        let data = Bytes::copy_from_slice(&value.to_be_bytes());
        let write = self.scene.checks.begins_to_write(register, value);
        loop {
            let written = file.write(offset, stability, data.clone()).await?;
            if written.committed == Stability::Unstable {
                self.pause(MAX_UNCOMMITTED_MICROS).await;
            }
            if written.committed != Stability::Unstable || file.commit(0, 0).await? == written.verifier {
                break;
            }
            self.scene.tally.count("files: written once more");
        }
        self.scene.checks.wrote(register, write);
        file.close().await
    }
}

/// Checks that a file has these bytes.
async fn judge_file(
    scene: &Scene,
    files: &Files,
    (directory, name, octets): (&Handle, &str, &[u8]),
    block: u32,
) -> Result<(), Error> {
    let file = files.open_at(directory, &named(name), Access::Read).await?;
    let mut reader = Reader::new(file.clone(), 0, u64::MAX, block, 2);
    let mut has = Vec::new();
    while let Some(block) = reader.next().await? {
        has.extend_from_slice(&block.data);
    }
    file.close().await?;
    if has != octets {
        let at = has.iter().zip(octets).position(|(is, was)| is != was);
        let (len, all) = (has.len(), octets.len());
        scene.checks.found(format!("{name} has {len} bytes of {all}, others from {at:?} on"));
    }
    scene.checks.done("files: a file is read");
    Ok(())
}

/// Checks that a directory lists all known names, each once.
async fn judge_names(scene: &Scene, files: &Files, directory: &Handle, known: &Directory) -> Result<(), Error> {
    let transfer = files.transfer(directory).await?;
    let (mut listing, mut names) = (files.list(directory, transfer), Vec::new());
    while let Some(entry) = listing.next().await? {
        names.push(String::from_utf8_lossy(entry.name.as_slice()).into_owned());
    }
    names.retain(|name| name != "." && name != "..");
    if let Some(wrong) = known.differs(&names) {
        scene.checks.found(wrong);
    }
    scene.checks.done("files: a directory is listed");
    Ok(())
}

/// Checks that everything known of a directory is there.
async fn judge_directory(scene: &Scene, files: &Files, root: &Handle, known: &Directory) -> Result<(), Error> {
    let directory = files.lookup(root, &named(&known.name())).await?.file;
    judge_names(scene, files, &directory, known).await?;
    for (name, content) in known.known() {
        match &content {
            Content::File(octets) => judge_file(scene, files, (&directory, &name, octets), BLOCKS[1]).await?,
            Content::Symlink(target) => {
                let link = files.lookup(&directory, &named(&name)).await?.file;
                if files.readlink(&link).await? != *target {
                    scene.checks.found(format!("{name} points to something else"));
                }
            }
            Content::Directory | Content::Pipe => {
                let expected = if content == Content::Pipe { FileType::Fifo } else { FileType::Directory };
                let found = files.lookup(&directory, &named(&name)).await?.attributes.file_type;
                if found != expected {
                    scene.checks.found(format!("{name} is {found:?}"));
                }
            }
        }
    }
    Ok(())
}
