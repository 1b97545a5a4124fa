//! How many descriptors the kept files take.

use super::*;
use crate::directory::start::{object_limit, open_limit};

#[test]
fn many_files_do_not_use_many_descriptors() {
    let scratch = Scratch::new(INDEXED);
    let client = scratch.start();
    let root = client.root();
    let mut above = root.clone();
    for depth in 0..60 {
        above = client.new_directory(&above, format!("d{depth}").as_str());
    }
    let files: Vec<_> = (0..2000).map(|n| client.new_file(&above, format!("f{n}").as_str())).collect();
    let descriptors = host::read_dir("/proc/self/fd").unwrap().count() as u64;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    assert!(descriptors < limit / 2 || limit > 40_000, "{descriptors} of {limit}");
    drop(client);
    let client = scratch.start();
    for file in files.iter().step_by(97) {
        assert!(client.attributes(file).is_ok());
    }
}

/// The descriptors of all kept files leave half for connections, however few descriptors there are.
#[test]
fn kept_files_leave_descriptors_for_connections() {
    let each = 1 + object::MAX_OPENED;
    for descriptors in [256, 1024, 40_959, 40_960, u64::MAX] {
        assert!((object_limit(descriptors) * each) as u64 <= descriptors / 2);
    }
    assert_eq!((object_limit(40_959), object_limit(40_960), object_limit(u64::MAX)), (4095, 4096, 4096));
}

#[test]
fn directories_of_one_program_share_its_descriptors() {
    let scratch = Scratch::new(Ways::default());
    let state = StateDirectory::open(scratch.directory.path().join("state"), &*env().random).unwrap();
    let limit = |of: usize| {
        let directory = DirectoryFs::open_one_of(of, &scratch.served(), &state, Queue::in_place(), &env()).unwrap();
        directory.inner.open_files.most()
    };
    let all = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    for of in [1_usize, 3, 1 << 20] {
        assert_eq!(limit(of), open_limit(all / of as u64));
    }
}
