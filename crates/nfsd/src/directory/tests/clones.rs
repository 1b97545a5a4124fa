//! Clones on file systems that can share blocks on the disk, and refusals on file systems that cannot.

use super::{disk::Disk, *};
use crate::{Access, Caller, Fault, Span, Via, testing::wait};
use std::{fs::File, os::unix::fs::FileExt};

const UNIT: u64 = 4_096;

/// A directory with two files; the first has three units of data and some bytes.
fn serve(served: &Path, state: &Path) -> (DirectoryFs, [Via; 2]) {
    host::write(served.join("from"), vec![7; 3 * UNIT as usize + 10]).unwrap();
    host::write(served.join("to"), vec![8; 9 * UNIT as usize]).unwrap();
    let state = StateDirectory::open(state.to_owned(), &*env().random).unwrap();
    let directory = DirectoryFs::open(served, &state, Queue::in_place(), &env()).unwrap();
    let open = |name: &'static str| {
        let found = wait(directory.lookup(Caller::root(), directory.root(), name.into())).unwrap();
        let open = wait(directory.open(Caller::root(), found.file, Access::Both)).unwrap();
        Via::open(Caller::root(), open)
    };
    let ends = [open("from"), open("to")];
    (directory, ends)
}

fn clone(directory: &DirectoryFs, [from, to]: &[Via; 2], (start, at, length): (u64, u64, u64)) -> Result<(), Fault> {
    let span = Span { from: start, to: at, length };
    wait(directory.clone_range(from.clone(), to.clone(), span)).map(drop).map_err(|failed| failed.fault)
}

fn clones_on(make: &str, options: &[&str]) {
    let Some(disk) = Disk::of(make, options) else { return };
    let served = disk.served();
    let (directory, ends) = serve(&served, &disk.state());
    assert_eq!(directory.features().clone_bytes, Some(UNIT as u32), "{make}");
    directory.inner.synchronised.lock().unwrap().clear();
    assert_eq!(clone(&directory, &ends, (UNIT, 2 * UNIT, 2 * UNIT)), Ok(()), "{make}");
    assert_eq!(*directory.inner.synchronised.lock().unwrap(), [ends[1].file()], "answered when the disk has it");
    let mut octets = vec![0; 9 * UNIT as usize];
    File::open(served.join("to")).unwrap().read_exact_at(&mut octets, 0).unwrap();
    let is = |range: std::ops::Range<u64>, octet: u8| {
        octets[range.start as usize..range.end as usize].iter().all(|found| *found == octet)
    };
    assert!(is(0..2 * UNIT, 8) && is(2 * UNIT..4 * UNIT, 7) && is(4 * UNIT..9 * UNIT, 8), "{make}");
    for wrong in [(1, 0, UNIT), (0, 1, UNIT), (0, 0, UNIT - 1), (0, 0, 8 * UNIT)] {
        assert_eq!(clone(&directory, &ends, wrong), Err(Fault::Invalid), "{make} {wrong:?}");
    }
    assert_eq!(clone(&directory, &ends, (0, i64::MAX as u64, UNIT)), Err(Fault::TooLarge), "{make}");
    let same = [ends[1].clone(), ends[1].clone()];
    assert_eq!(clone(&directory, &same, (0, UNIT, 2 * UNIT)), Err(Fault::Invalid), "{make}");
    assert_eq!(clone(&directory, &same, (0, 20 * UNIT, 2 * UNIT)), Ok(()), "{make}");
    assert_eq!(host::metadata(served.join("to")).unwrap().len(), 22 * UNIT);
    // Two directories of the same file system, and one of another file system.
    host::create_dir(served.join("below")).unwrap();
    let (_below, of_below) = serve(&served.join("below"), &disk.state());
    let across = [of_below[0].clone(), ends[1].clone()];
    assert_eq!(clone(&directory, &across, (0, 0, UNIT)), Ok(()), "{make}");
    let elsewhere = tempfile::tempdir().unwrap();
    host::create_dir(elsewhere.path().join("served")).unwrap();
    let (_other, of_other) = serve(&elsewhere.path().join("served"), &elsewhere.path().join("state"));
    let across = [of_other[0].clone(), ends[1].clone()];
    assert_eq!(clone(&directory, &across, (0, 0, UNIT)), Err(Fault::OtherFileSystem), "{make}");
    let span = Span { from: 0, to: 50 * UNIT, length: 2 * UNIT };
    let copied = wait(directory.copy(across[0].clone(), across[1].clone(), span)).unwrap();
    assert_eq!(copied.count, 2 * UNIT, "what cannot be shared is copied");
    assert_eq!(host::metadata(served.join("to")).unwrap().len(), 52 * UNIT);
}

#[test]
fn ranges_are_cloned_on_xfs() {
    clones_on("mkfs.xfs", &["-q", "-m", "reflink=1"]);
}

#[test]
fn ranges_are_cloned_on_btrfs() {
    clones_on("mkfs.btrfs", &["-q"]);
}

/// proves: NFS4-7862-12.2.1-a
#[test]
fn a_file_system_that_cannot_clone_says_so() {
    let Some(disk) = Disk::of("mkfs.ext4", &["-q", "-F"]) else { return };
    let served = disk.served();
    let (directory, ends) = serve(&served, &disk.state());
    assert_eq!(directory.features().clone_bytes, None);
    assert_eq!(clone(&directory, &ends, (0, 0, UNIT)), Err(Fault::Unsupported));
    assert_eq!(host::read(served.join("to")).unwrap(), vec![8; 9 * UNIT as usize]);
}

/// The bytes copied before a hole without room count.
#[test]
fn a_copy_whose_last_hole_does_not_fit_says_how_much_there_is() {
    const LARGEST: u64 = 0xFFF_FFFF_F000;
    let Some(disk) = Disk::of("mkfs.ext4", &["-q", "-F", "-b", "4096"]) else { return };
    let (directory, ends) = serve(&disk.served(), &disk.state());
    File::options().write(true).open(disk.served().join("from")).unwrap().set_len(8 * UNIT).unwrap();
    let copy = |to, length| wait(directory.copy(ends[0].clone(), ends[1].clone(), Span { from: 0, to, length }));
    let copied = copy(LARGEST - 4 * UNIT, 8 * UNIT).unwrap();
    assert_eq!(copied.count, 4 * UNIT, "the data, up to the end of its last block");
    assert_eq!(copy(LARGEST, 8 * UNIT).map_err(|failed| failed.fault).err(), Some(Fault::TooLarge));
}

/// A file that is open in a file system of another kind is none of ours, whatever its number.
#[test]
fn what_is_open_in_a_file_system_of_another_kind_is_not_read_here() {
    let scratch = Scratch::new(Ways::default());
    let (directory, ends) = serve(&scratch.served(), &scratch.directory.path().join("state"));
    let memory = crate::MemoryFs::new(1 << 20, &env());
    let new = crate::New::File(crate::CreateHow::Guarded(Default::default()));
    let made = wait(memory.make(Caller::root(), memory.root(), "f".into(), new)).unwrap();
    let open = wait(memory.open(Caller::root(), made.file, Access::Both)).unwrap();
    let across = [Via::open(Caller::root(), open), ends[1].clone()];
    assert_eq!(clone(&directory, &across, (0, 0, 1)), Err(Fault::OtherFileSystem));
    let span = Span { from: 0, to: 0, length: 1 };
    let copied = wait(directory.copy(across[0].clone(), across[1].clone(), span));
    assert_eq!(copied.err().map(|failed| failed.fault), Some(Fault::OtherFileSystem));
    let copied = wait(memory.copy(ends[0].clone(), across[0].clone(), span));
    assert_eq!(copied.err().map(|failed| failed.fault), Some(Fault::OtherFileSystem));
}

/// Copies clear the bits that a write of the same caller would clear, unless it may write as root.
#[test]
fn copies_space_and_clones_take_the_set_user_id_bit_away_as_a_write_does() {
    if !geteuid().is_root() {
        eprintln!("not run: only root acts as others");
        return;
    }
    let scratch = Scratch::new(Ways::default());
    let (directory, ends) = serve(&scratch.served(), &scratch.directory.path().join("state"));
    let to = scratch.served().join("to");
    let other = Caller::new(NOBODY, NOBODY);
    let via = |via: &Via| Via::open(other.clone(), via.opened().unwrap().clone());
    let set = || host::set_permissions(&to, host::Permissions::from_mode(0o4777)).unwrap();
    let mode = || host::metadata(&to).unwrap().mode() & 0o7777;
    let span = Span { from: 0, to: 0, length: 9 };
    set();
    wait(directory.copy(via(&ends[0]), via(&ends[1]), span)).unwrap();
    assert_eq!(mode(), 0o777);
    set();
    wait(directory.allocate(via(&ends[1]), 0, UNIT)).unwrap();
    assert_eq!(mode(), 0o777);
    set();
    wait(directory.deallocate(via(&ends[1]), 0, UNIT)).unwrap();
    assert_eq!(mode(), 0o777);
}
