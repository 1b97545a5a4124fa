//! The state directory below the served one: names, listings and handles do not show it.

use super::*;
use rpcrdma_nfs::v3::{EntryPlus, NodeKind, Path as LinkPath};

const STATE: &str = "home/.local/state";

/// A served directory with the state directory in it, as when a user serves the home directory.
struct Below(Scratch);

impl Below {
    fn new(scratch: &Scratch) -> Self {
        let scratch = Scratch::new(scratch.ways);
        host::create_dir_all(scratch.served().join(STATE)).unwrap();
        Self(scratch)
    }

    fn state(&self) -> PathBuf {
        self.0.served().join(STATE).join("rpcrdma")
    }

    fn open(&self, state: &Path) -> DirectoryFs {
        let state = StateDirectory::open(state, &*env().random).unwrap();
        DirectoryFs::open_with(&self.0.served(), &state, Queue::in_place(), &env(), self.0.ways).unwrap()
    }

    /// A client that may do everything, of a server with its state at `state`.
    fn start(&self, state: &Path) -> Client {
        let identities = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", Arc::new(self.open(state))).with_identities(identities);
        Client::of(&Nfsd::new(vec![export], SECRET, &env()).unwrap())
    }
}

/// Names with and without READDIRPLUS's attributes, in replies of a few bytes.
fn listed(client: &Client, directory: &Handle, max_count: u32) -> Vec<Vec<u8>> {
    let (mut cookie, mut verifier) = (0, v3::Verifier::default());
    let mut names = Vec::new();
    loop {
        let directory = directory.clone();
        let list = v3::ReadDirectoryPlus { directory, cookie, verifier, directory_count: max_count, max_count };
        let listing = plain(client.ask(list)).unwrap();
        names.extend(listing.entries.iter().map(|entry: &EntryPlus| entry.name.as_slice().to_vec()));
        if listing.end {
            names.sort();
            return names;
        }
        cookie = listing.entries.last().unwrap().cookie;
        verifier = listing.verifier;
    }
}

/// proves: NFS3-ESC-d
#[test]
fn no_name_leads_to_the_state_directory_and_no_listing_shows_it() {
    in_each_way(|scratch| {
        let below = Below::new(scratch);
        let parent = below.0.served().join(STATE);
        for n in 0..40 {
            host::write(parent.join(format!("beside-{n:02}")), "x").unwrap();
        }
        let client = below.start(&below.state());
        assert!(below.state().join("secret").exists());
        let home = client.walk(STATE).unwrap();
        let refused = |result: Result<(), Status>, status| assert_eq!(result, Err(status));
        refused(client.lookup(&home, "rpcrdma").map(|_| ()), Status::NOENT);
        assert!(client.mount(&format!("/{STATE}/rpcrdma")).is_err());
        assert!(client.mount(&format!("/{STATE}/rpcrdma/secret")).is_err());
        // Replies so small that the hidden name would be the first, the last or the only one in some of them.
        for count in [400, 600, 5000] {
            let expected = 40 + 2;
            assert_eq!(client.names(&home, count).len(), expected, "{count}");
            let names = listed(&client, &home, count);
            assert!(names.len() == expected && !names.contains(&b"rpcrdma".to_vec()), "{count}: {names:?}");
        }
        // Its name is taken, and it stays unchanged.
        let none = NewAttributes::default;
        for how in
            [CreateHow::Unchecked(none()), CreateHow::Guarded(none()), CreateHow::Exclusive(v3::Verifier([1; 8]))]
        {
            refused(client.create(&home, "rpcrdma", how).map(|_| ()), Status::EXIST);
        }
        let make = v3::MakeDirectory { directory: home.clone(), name: "rpcrdma".into(), attributes: none() };
        refused(plain(client.ask(make)).map(|_| ()), Status::EXIST);
        let (attributes, path) = (none(), LinkPath::from("x"));
        let link = v3::SymbolicLink { directory: home.clone(), name: "rpcrdma".into(), attributes, path };
        refused(plain(client.ask(link)).map(|_| ()), Status::EXIST);
        let node = v3::MakeNode { directory: home.clone(), name: "rpcrdma".into(), kind: NodeKind::Fifo(none()) };
        refused(plain(client.ask(node)).map(|_| ()), Status::EXIST);
        let file = client.lookup(&home, "beside-00").unwrap().file;
        let link = v3::Link { file, directory: home.clone(), name: "rpcrdma".into() };
        refused(plain(client.ask(link)).map(|_| ()), Status::EXIST);
        refused(client.rename((&home, "rpcrdma"), (&home, "found")).map(|_| ()), Status::NOENT);
        refused(client.rename((&home, "beside-00"), (&home, "rpcrdma")).map(|_| ()), Status::EXIST);
        client.new_directory(&home, "directory");
        refused(client.rename((&home, "directory"), (&home, "rpcrdma")).map(|_| ()), Status::EXIST);
        refused(client.remove_directory(&home, "rpcrdma").map(|_| ()), Status::NOENT);
        refused(client.remove(&home, "rpcrdma").map(|_| ()), Status::NOENT);
        assert_eq!(host::read(below.state().join("secret")).unwrap().len(), 16);
    });
}

/// The directory itself is hidden, not a path.
/// proves: NFS3-ESC-d
#[test]
fn the_state_directory_stays_hidden_when_what_is_above_it_moves() {
    in_each_way(|scratch| {
        let below = Below::new(scratch);
        let client = below.start(&below.state());
        for (above, name) in [("", "home"), ("home", ".local"), ("home/.local", "state")] {
            let above = if above.is_empty() { client.root() } else { client.walk(above).unwrap() };
            let moved = client.rename((&above, name), (&client.root(), "moved"));
            assert_eq!(moved.map(|_| ()), Err(Status::ACCES), "{name}");
        }
        host::rename(below.0.served().join("home"), below.0.served().join("moved")).unwrap();
        let state = client.walk("moved/.local/state").unwrap();
        assert_eq!(client.lookup(&state, "rpcrdma").map(|_| ()), Err(Status::NOENT));
        assert_eq!(client.names(&state, 1000).len(), 2);
        assert!(client.remove_directory(&client.walk("moved/.local").unwrap(), "state").is_err(), "it is not empty");
        // Another directory of the same name is not hidden.
        let other = client.new_directory(&client.root(), "rpcrdma");
        assert_eq!(client.walk("rpcrdma"), Ok(other));
    });
}

/// Before, the directory was served with another state, and clients have handles of the files that are hidden now.
/// proves: NFS3-ESC-d
#[test]
fn handles_of_what_is_hidden_now_are_stale() {
    in_each_way(|scratch| {
        let below = Below::new(scratch);
        let elsewhere = below.0.directory.path().join("state");
        drop(below.open(&below.state()));
        host::create_dir(below.state().join("inner")).unwrap();
        host::write(below.state().join("inner/file"), "x").unwrap();
        let client = below.start(&elsewhere);
        let paths = ["", "/secret", "/inner", "/inner/file"].map(|path| format!("{STATE}/rpcrdma{path}"));
        let handles = paths.map(|path| client.walk(&path).unwrap());
        assert_eq!(client.contents(&handles[1]).len(), 16, "hidden with the state that is in use");
        drop(client);
        for entry in host::read_dir(&elsewhere).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with("index-") && !name.ends_with(".lock") {
                host::copy(entry.path(), below.state().join(name)).unwrap();
            }
        }
        let client = below.start(&below.state());
        for handle in &handles {
            assert_eq!(client.attributes(handle).map(|_| ()), Err(Status::STALE));
            assert!(client.read(handle, 0, 16).is_err());
            assert_eq!(client.lookup(handle, "secret").map(|_| ()), Err(Status::STALE));
            assert!(client.write(handle, 0, "x").is_err());
            assert!(client.create(handle, "x", CreateHow::Guarded(NewAttributes::default())).is_err());
        }
        assert_eq!(client.read(&handles[1], 0, 16).map(|_| ()), Err(Status::STALE));
        let link = v3::Link { file: handles[1].clone(), directory: client.root(), name: "stolen".into() };
        assert_eq!(plain(client.ask(link)).map(|_| ()), Err(Status::STALE));
    });
}

#[test]
fn the_state_directory_itself_is_not_served_and_one_in_it_is() {
    in_each_way(|scratch| {
        let state = StateDirectory::open(scratch.served(), &*env().random).unwrap();
        let open = |path: &Path| DirectoryFs::open(path, &state, Queue::in_place(), &env());
        assert!(matches!(open(&scratch.served()), Err(OpenError::ServesState { .. })));
        let inner = scratch.served().join("inner");
        host::create_dir_all(inner.join("a/b")).unwrap();
        let client = Client::serving(Arc::new(open(&inner).unwrap()));
        let (a, b) = (client.walk("a").unwrap(), client.walk("a/b").unwrap());
        assert_eq!(client.lookup(&b, "..").unwrap().file, a, "nothing is hidden from it");
        assert_eq!(client.lookup(&client.root(), "..").unwrap().file, client.root());
    });
}

/// Every spelling of the path leads to the same directory, with the same index.
#[test]
fn a_directory_is_served_once_however_its_path_is_spelled() {
    in_each_way(|scratch| {
        let link = scratch.directory.path().join("link");
        symlink(scratch.served(), &link).unwrap();
        let client = scratch.start();
        let file = client.new_file(&client.root(), "file");
        let state = StateDirectory::open(scratch.directory.path().join("state"), &*env().random).unwrap();
        let open = |path: &Path| DirectoryFs::open_with(path, &state, Queue::in_place(), &env(), scratch.ways);
        let spelled = scratch.served().join(".");
        for path in [scratch.served(), spelled, link.clone()] {
            assert!(matches!(open(&path), Err(OpenError::InUse { .. })), "{}", path.display());
        }
        drop(client);
        let client = Client::serving(Arc::new(open(&link).unwrap()));
        assert!(client.attributes(&file).is_ok(), "handles are the directory's, not the path's");
    });
}
