//! Small files from a server: many are read in one call, several such calls are under way, and what has come is written
//! here by another thread than the one that serves the connection.
//!
//! This is a short cut. A file that did not come in this way, whole and as its directory told it, is copied as every
//! other ([`Copier::regular`]), which also tells what is wrong with it.

use super::{
    Copier,
    later::FileId,
    regular::is_copy,
    target::{Output, existing, part_path},
};
use crate::{args::Placing, session::Session};
use anyhow::Result;
use bytes::Bytes;
use rpcrdma_env::Random;
use rpcrdma_nfs::attr::{Attributes, FileType};
use rpcrdma_nfs_client::{Batch, Found, ReadOk};
use std::path::{Path, PathBuf};

/// The largest file that is read in this way.
pub(super) const SMALL_OCTETS: u64 = 64 << 10;
/// Such calls under way. Each brings 256 KiB at most, however many files these are.
pub(super) const CALLS: usize = 32;

/// Threads that write at a time: more stand in each other's way, since they make files in one directory.
pub(super) const WRITERS: usize = 2;

/// A file that is to be copied, or was, and what came of it.
pub(super) type Done = (PathBuf, Result<()>);

/// A small file that is to be copied.
pub(super) struct Wanted {
    pub(super) found: Found,
    pub(super) local: PathBuf,
    pub(super) id: FileId,
}

impl Wanted {
    /// How many octets are asked for: of an empty file one, since there may be some after all.
    fn count(&self) -> u32 {
        u32::try_from(self.found.attributes.size).unwrap_or(u32::MAX).max(1)
    }

    /// Whether what came is all of the file, and what its directory told of it.
    fn is_whole(&self, read: &ReadOk) -> bool {
        read.end && read.data.len() as u64 == self.found.attributes.size
    }
}

/// Files that are read in one call: those of the next one.
#[derive(Default)]
pub(super) struct Basket {
    wanted: Vec<Wanted>,
    octets: u64,
}

impl Basket {
    /// Puts a file in. Gives those that were in it, if there is no room beside them.
    pub(super) fn put(&mut self, wanted: Wanted, batch: Batch) -> Option<Vec<Wanted>> {
        let octets = u64::from(wanted.count());
        let is_full = self.wanted.len() >= batch.files || self.octets + octets > batch.octets.into();
        let full = (is_full && !self.wanted.is_empty()).then(|| self.take());
        self.octets += octets;
        self.wanted.push(wanted);
        full
    }

    /// Takes all out.
    pub(super) fn take(&mut self) -> Vec<Wanted> {
        self.octets = 0;
        std::mem::take(&mut self.wanted)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }
}

/// A file that has come whole.
struct Arrived {
    wanted: Wanted,
    data: Bytes,
}

/// What became of it here.
struct Placed {
    wanted: Wanted,
    octets: usize,
    notes: Vec<String>,
    result: Result<()>,
}

impl Copier {
    /// Whether a file is read in this way: it is small, no part of it can be here, and it alone is asked for.
    pub(super) fn is_small(&self, found: &Found, local: &Path, batch: Batch) -> bool {
        let Attributes { file_type, size, .. } = found.attributes;
        file_type == FileType::Regular
            && size <= SMALL_OCTETS.min(batch.octets.into())
            && !self.placing.inplace
            && !self.xattrs
            && (!self.placing.resume || part_path(local).is_some_and(|part| part.symlink_metadata().is_err()))
    }

    /// Whether `--resume` passes over a file, which is whole already.
    pub(super) fn is_there(&self, found: &Found, local: &Path) -> bool {
        self.placing.resume && matches!(existing(local), Ok(Some(here)) if is_copy(&here, &found.attributes))
    }

    /// Copies files that are read in one call.
    pub(super) async fn basket(&self, session: &Session, basket: Vec<Wanted>) -> Vec<Done> {
        let asked: Vec<_> = basket.iter().map(|wanted| (wanted.found.file.clone(), wanted.count())).collect();
        let read = match session.files.gather(&asked).await {
            Ok(read) => read,
            Err(error) if error.is_unreachable() => {
                let failed = basket.into_iter().map(|wanted| self.ended(wanted, Err(error.clone().into())));
                return failed.collect();
            }
            Err(_) => Vec::new(),
        };
        let (mut arrived, mut others) = (Vec::with_capacity(basket.len()), Vec::new());
        let read = read.into_iter().chain(std::iter::repeat_with(|| None));
        for (wanted, read) in basket.into_iter().zip(read) {
            match read.filter(|read| wanted.is_whole(read)) {
                Some(ReadOk { data, .. }) => arrived.push(Arrived { wanted, data }),
                None => others.push(wanted),
            }
        }
        let mut done = Vec::with_capacity(arrived.len() + others.len());
        for Placed { wanted, octets, notes, result } in self.placed(arrived).await {
            notes.iter().for_each(|note| self.note(&wanted.local, note));
            if result.is_ok() {
                let mut tally = self.tally.borrow_mut();
                tally.moved(octets);
                tally.file_done();
            }
            done.push(self.ended(wanted, result));
        }
        for wanted in others {
            let copied = self.regular(session, &wanted.found, &wanted.local).await;
            done.push(self.ended(wanted, copied));
        }
        done
    }

    /// Writes what has come, beside the calls that are under way: a single file here, which takes less time than to wake
    /// another thread.
    async fn placed(&self, mut arrived: Vec<Arrived>) -> Vec<Placed> {
        let (placing, random) = (self.placing, self.random.clone());
        if arrived.len() <= 1 {
            return arrived.pop().map(|arrived| place(arrived, placing, &*random)).into_iter().collect();
        }
        // Never closed.
        let _writes = self.writers.acquire().await;
        let place =
            move || -> Vec<Placed> { arrived.into_iter().map(|arrived| place(arrived, placing, &*random)).collect() };
        match tokio::task::spawn_blocking(place).await {
            Ok(placed) => placed,
            // It has panicked.
            Err(error) => std::panic::resume_unwind(error.try_into_panic().unwrap_or_else(|error| Box::new(error))),
        }
    }

    /// Remembers what became of a file.
    pub(super) fn ended(&self, wanted: Wanted, copied: Result<()>) -> Done {
        match &copied {
            Ok(()) => self.known.borrow_mut().copied(wanted.id),
            Err(_) => self.known.borrow_mut().failed(wanted.id, &wanted.local),
        }
        (wanted.local, copied)
    }
}

/// Writes one file.
fn place(Arrived { wanted, data }: Arrived, placing: Placing, random: &dyn Random) -> Placed {
    let (local, source, mut notes) = (&wanted.local, &wanted.found.attributes, Vec::new());
    let result = Output::open(local, placing, source, random).and_then(|output| {
        notes.extend(output.in_place.map(|reason| format!("is written in place: {reason}")));
        if let Err(error) = output.write_data(&data, 0, source) {
            notes.extend(output.remains());
            return Err(error.into());
        }
        notes.extend(output.finish_here(data.len() as u64, source)?.map(str::to_owned));
        Ok(())
    });
    Placed { octets: data.len(), wanted, notes, result }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::sample_attributes, *};
    use rpcrdma_nfs_client::Handle;

    fn wanted(size: u64) -> Wanted {
        let mut attributes = sample_attributes(FileType::Regular);
        attributes.size = size;
        let found = Found { file: Handle::new(b"f").unwrap(), attributes, place: None };
        Wanted { found, local: PathBuf::from("f"), id: FileId::sample() }
    }

    #[test]
    fn a_basket_holds_no_more_files_and_octets_than_a_call() {
        let (mut basket, batch) = (Basket::default(), Batch { files: 2, octets: 100 });
        assert!(basket.put(wanted(1), batch).is_none() && basket.put(wanted(0), batch).is_none());
        assert_eq!(basket.put(wanted(60), batch).unwrap().len(), 2, "two files");
        assert_eq!(basket.put(wanted(41), batch).unwrap().len(), 1, "a hundred octets");
        assert_eq!(basket.take().len(), 1);
        assert!(basket.is_empty() && basket.put(wanted(1_000), batch).is_none(), "one in any case");
    }

    #[test]
    fn what_is_not_as_its_directory_told_comes_in_the_usual_way() {
        let read = |len: usize, end| ReadOk { data: Bytes::from(vec![7; len]), end };
        for (size, read, is_whole) in [
            (4, read(4, true), true),
            (4, read(4, false), false),
            (4, read(3, true), false),
            (0, read(0, true), true),
            (0, read(1, true), false),
        ] {
            assert_eq!(wanted(size).is_whole(&read), is_whole, "{size} {read:?}");
        }
    }
}
