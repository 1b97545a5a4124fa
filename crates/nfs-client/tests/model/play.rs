//! Random sequences of what programs do with files, and a model of the right results.

use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Random};
use rpcrdma_nfs::attr::{FileType, NewAttributes, Stability};
use rpcrdma_nfs_client::{Access, Cause, CreateHow, Error, File, Files, Handle, Name};
use std::collections::BTreeMap;

/// So few names are used that operations often meet the same name.
const NAMES: u64 = 5;
/// The largest piece that is written, and its largest offset.
const MAX_PIECE: u64 = 40_000;
const MAX_OFFSET: u64 = 60_000;
/// The most files that are open at a time.
const MAX_OPEN: usize = 3;

/// The kind of file that has a name.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    File(usize),
    Link(String),
    Directory(BTreeMap<String, Node>),
}

#[derive(Debug, Default)]
struct Contents {
    octets: Vec<u8>,
    mode: u32,
}

/// Runs before a step, and may make something go wrong.
pub(crate) type Trouble<'a> = dyn FnMut() -> BoxFuture<'a, ()> + 'a;

/// A client, and the files that must exist.
struct Play<'a> {
    files: &'a Files,
    root: &'a Handle,
    random: &'a dyn Random,
    /// Whether calls may have been executed although their replies were lost.
    has_trouble: bool,
    tree: BTreeMap<String, Node>,
    contents: Vec<Contents>,
    open: Vec<(File, usize)>,
}

/// Makes this many steps. Panics if anything is wrong.
pub(crate) async fn play<'a>(
    files: &'a Files,
    root: &'a Handle,
    random: &'a dyn Random,
    steps: usize,
    mut trouble: Option<&mut Trouble<'a>>,
) {
    let (tree, contents, open) = Default::default();
    let mut play = Play { files, root, random, has_trouble: trouble.is_some(), tree, contents, open };
    for step in 0..steps {
        if let Some(trouble) = &mut trouble {
            trouble().await;
        }
        play.step(step).await;
    }
    for (file, number) in std::mem::take(&mut play.open) {
        play.look_at(&file, number).await;
        file.close().await.unwrap();
    }
    play.judge().await;
}

impl Play<'_> {
    /// Checks a result against the model: `refused` lists the possible errors, or is `None` for a success. If calls may
    /// come twice, a call also succeeds if the state is as it would leave it: nobody can tell the difference.
    fn hold<T>(&self, what: &str, result: Result<T, Error>, refused: Option<&[Cause]>) -> Option<T> {
        match (result, refused) {
            (Ok(value), None) => Some(value),
            (Err(error), Some(causes)) => {
                let cause = error.cause();
                assert!(cause.is_some_and(|cause| causes.contains(&cause)), "{what}: {error}");
                None
            }
            (Ok(_), Some(_)) if self.has_trouble => None,
            (Ok(_), Some(causes)) => panic!("{what}: done, and {causes:?} is what it should be"),
            (Err(error), None) => panic!("{what}: {error} ({error:?})"),
        }
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// A random directory: the root, or a directory in it. Returns its name and its handle.
    async fn directory(&self) -> (Option<String>, Handle) {
        let within = self.tree.iter().filter(|(_, node)| matches!(node, Node::Directory(_)));
        let names: Vec<_> = within.map(|(name, _)| name.clone()).collect();
        match self.below(names.len() as u64 + 2) as usize {
            at if at < names.len() => {
                let name = names[at].clone();
                let found = self.files.lookup(self.root, &Name::from(name.as_str())).await.unwrap();
                (Some(name), found.file)
            }
            _ => (None, self.root.clone()),
        }
    }

    fn names(&self, directory: &Option<String>) -> &BTreeMap<String, Node> {
        match directory.as_ref().map(|name| &self.tree[name]) {
            Some(Node::Directory(names)) => names,
            _ => &self.tree,
        }
    }

    fn names_mut(&mut self, directory: &Option<String>) -> &mut BTreeMap<String, Node> {
        match directory {
            None => &mut self.tree,
            Some(name) => match self.tree.get_mut(name) {
                Some(Node::Directory(names)) => names,
                other => panic!("{other:?}"),
            },
        }
    }

    fn name(&self) -> String {
        format!("name {}", self.below(NAMES))
    }

    fn is_open(&self, node: Option<&Node>) -> bool {
        matches!(node, Some(Node::File(number)) if self.open.iter().any(|(_, open)| open == number))
    }

    async fn step(&mut self, step: usize) {
        let (directory, handle) = self.directory().await;
        let called = self.name();
        let name = Name::from(called.as_str());
        let there = self.names(&directory).get(&called).cloned();
        let what = |op: &str| format!("step {step}: {op} {directory:?} {called:?} ({there:?})");
        match self.below(16) {
            0 | 1 => self.create(&what("create"), &directory, &handle, &called).await,
            2 => {
                let refused = there.is_some().then_some(&[Cause::Exists][..]);
                // Directories lie only in the root.
                if directory.is_none() {
                    let made = self.files.mkdir(&handle, &name, NewAttributes::default()).await;
                    if self.hold(&what("mkdir"), made, refused).is_some() {
                        self.tree.insert(called, Node::Directory(BTreeMap::new()));
                    }
                }
            }
            3 => {
                let refused = there.is_some().then_some(&[Cause::Exists][..]);
                let target = format!("to {step}");
                let bytes = Bytes::copy_from_slice(target.as_bytes());
                let made = self.files.symlink(&handle, &name, NewAttributes::default(), bytes).await;
                if self.hold(&what("symlink"), made, refused).is_some() {
                    self.names_mut(&directory).insert(called, Node::Link(target));
                }
            }
            4 => self.remove(&what("remove"), &directory, &handle, &called).await,
            5 | 6 => self.rename(&what("rename"), &directory, &handle, &called).await,
            7 => self.link(&what("link"), &directory, &handle, &called).await,
            8 => {
                let listed = self.list(&handle).await;
                let known: Vec<_> = self.names(&directory).keys().cloned().collect();
                assert_eq!(listed, known, "{}", what("list"));
            }
            9 => {
                if let Some(Node::File(number)) = there {
                    let mode = 0o600 | self.below(0o100) as u32;
                    let found = self.files.lookup(&handle, &name).await.unwrap();
                    let new = NewAttributes { mode: Some(mode), ..Default::default() };
                    self.hold(&what("setattr"), self.files.setattr(&found.file, new, None).await, None);
                    self.contents[number].mode = mode;
                }
            }
            10 | 11 => self.open(&what("open"), &handle, &called, there.as_ref()).await,
            12 if !self.open.is_empty() => {
                let (file, number) = self.open.remove(self.below(self.open.len() as u64) as usize);
                self.look_at(&file, number).await;
                self.hold(&what("close"), file.close().await, None);
            }
            _ if !self.open.is_empty() => self.change(step).await,
            _ => {}
        }
    }

    async fn create(&mut self, what: &str, directory: &Option<String>, handle: &Handle, called: &str) {
        if self.open.len() >= MAX_OPEN {
            return;
        }
        let there = self.names(directory).get(called).cloned();
        let name = Name::from(called);
        let mode = 0o640;
        let new = NewAttributes { mode: Some(mode), ..Default::default() };
        let is_guarded = self.below(2) == 0;
        let how = if is_guarded { CreateHow::Guarded(new) } else { CreateHow::Unchecked(new) };
        let refused: Option<&[Cause]> = match &there {
            Some(_) if is_guarded => Some(&[Cause::Exists]),
            Some(Node::Directory(_)) => Some(&[Cause::Exists, Cause::IsDirectory]),
            Some(Node::Link(_)) => Some(&[Cause::Exists, Cause::Invalid, Cause::Other]),
            _ => None,
        };
        let mut made = self.files.create(handle, &name, how).await.map(|made| made.file);
        // If the reply of a guarded creation is lost, its repetition may find the file: nobody can tell who made it.
        if self.has_trouble
            && refused.is_none()
            && is_guarded
            && made.as_ref().is_err_and(|error| error.cause() == Some(Cause::Exists))
        {
            made = self.files.open_at(handle, &name, Access::Both).await;
        }
        let Some(file) = self.hold(what, made, refused) else { return };
        let number = match there {
            Some(Node::File(number)) => number,
            _ => {
                self.contents.push(Contents { octets: Vec::new(), mode });
                let number = self.contents.len() - 1;
                self.names_mut(directory).insert(called.to_owned(), Node::File(number));
                number
            }
        };
        self.open.push((file, number));
    }

    async fn open(&mut self, what: &str, handle: &Handle, called: &str, there: Option<&Node>) {
        if self.open.len() >= MAX_OPEN {
            return;
        }
        match there {
            None => {
                let opened = self.files.open_at(handle, &Name::from(called), Access::Both).await;
                self.hold(what, opened, Some(&[Cause::Absent]));
            }
            Some(Node::File(number)) => {
                let opened = match self.below(2) {
                    0 => self.files.open_at(handle, &Name::from(called), Access::Both).await,
                    _ => {
                        let found = self.files.lookup(handle, &Name::from(called)).await.unwrap();
                        self.files.open(found, Access::Both).await
                    }
                };
                let file = self.hold(what, opened, None).unwrap();
                self.open.push((file, *number));
            }
            Some(Node::Link(target)) => {
                let found = self.files.lookup(handle, &Name::from(called)).await.unwrap();
                let read = self.hold(what, self.files.readlink(&found.file).await, None).unwrap();
                assert_eq!(read, target.as_bytes(), "{what}");
            }
            Some(Node::Directory(_)) => {}
        }
    }

    /// Writes to an open file, truncates it, or looks at it.
    async fn change(&mut self, step: usize) {
        let (file, number) = &self.open[self.below(self.open.len() as u64) as usize];
        let (file, number) = (file.clone(), *number);
        match self.below(6) {
            0 => {
                let size = self.below(MAX_OFFSET);
                let new = NewAttributes { size: Some(size), ..Default::default() };
                self.hold(&format!("step {step}: cut"), file.setattr(new).await, None);
                self.contents[number].octets.resize(size as usize, 0);
            }
            1 | 2 => self.look_at(&file, number).await,
            _ => {
                let offset = self.below(MAX_OFFSET);
                let with = self.below(256) as u8;
                let piece: Vec<u8> = (0..1 + self.below(MAX_PIECE)).map(|at| with.wrapping_add(at as u8)).collect();
                let stability = if self.below(2) == 0 { Stability::Unstable } else { Stability::FileSync };
                loop {
                    let mut done = 0;
                    let mut verifiers = Vec::new();
                    while done < piece.len() {
                        let data = Bytes::copy_from_slice(&piece[done..]);
                        let what = format!("step {step}: write");
                        let written = self.hold(&what, file.write(offset + done as u64, stability, data).await, None);
                        let written = written.unwrap();
                        done += written.count as usize;
                        verifiers.push(written.verifier);
                    }
                    if stability == Stability::FileSync {
                        break;
                    }
                    let verifier = self.hold(&format!("step {step}: commit"), file.commit(0, 0).await, None).unwrap();
                    if verifiers.iter().all(|written| *written == verifier) {
                        break;
                    }
                }
                let octets = &mut self.contents[number].octets;
                let end = offset as usize + piece.len();
                if octets.len() < end {
                    octets.resize(end, 0);
                }
                octets[offset as usize..end].copy_from_slice(&piece);
            }
        }
    }

    /// Checks all of an open file.
    async fn look_at(&self, file: &File, number: usize) {
        let known = &self.contents[number];
        let mut octets = Vec::new();
        loop {
            let read = file.read(octets.len() as u64, 32 << 10).await.unwrap();
            octets.extend_from_slice(&read.data);
            if read.end {
                break;
            }
        }
        assert!(octets == known.octets, "{} bytes of {}", octets.len(), known.octets.len());
        let attributes = file.getattr().await.unwrap();
        assert_eq!((attributes.size, attributes.mode & 0o777), (octets.len() as u64, known.mode));
        let mut links = 0;
        count(&self.tree, number, &mut links);
        assert_eq!(u64::from(attributes.links), links);
    }

    async fn remove(&mut self, what: &str, directory: &Option<String>, handle: &Handle, called: &str) {
        let there = self.names(directory).get(called).cloned();
        // The versions treat an open file without a name differently.
        if self.is_open(there.as_ref()) {
            return;
        }
        let name = Name::from(called);
        let (result, refused): (_, Option<&[Cause]>) = match &there {
            None => (self.files.remove(handle, &name).await, Some(&[Cause::Absent])),
            Some(Node::Directory(names)) => {
                let refused = (!names.is_empty()).then_some(&[Cause::NotEmpty, Cause::Exists][..]);
                (self.files.rmdir(handle, &name).await, refused)
            }
            Some(_) => (self.files.remove(handle, &name).await, None),
        };
        if self.hold(what, result, refused).is_some() {
            self.names_mut(directory).remove(called);
        }
    }

    async fn rename(&mut self, what: &str, directory: &Option<String>, handle: &Handle, called: &str) {
        let there = self.names(directory).get(called).cloned();
        let (to_directory, to_handle) = self.directory().await;
        let to = self.name();
        let target = self.names(&to_directory).get(&to).cloned();
        if self.is_open(target.as_ref()) || matches!(there, Some(Node::Directory(_))) && to_directory.is_some() {
            return;
        }
        let is_same = (directory, called) == (&to_directory, to.as_str());
        // If both are names of one file, both stay. Two empty directories are equal, but not the same.
        let is_one_file = matches!((&there, &target), (Some(Node::File(one)), Some(Node::File(other))) if one == other);
        let refused: Option<&[Cause]> = match (&there, &target) {
            (None, _) => Some(&[Cause::Absent]),
            _ if is_same => None,
            (Some(Node::Directory(_)), Some(Node::Directory(names))) if !names.is_empty() => {
                Some(&[Cause::NotEmpty, Cause::Exists])
            }
            (Some(Node::Directory(_)), Some(Node::Directory(_)) | None) => None,
            (Some(Node::Directory(_)), Some(_)) => Some(&[Cause::NotDirectory, Cause::Exists]),
            (Some(_), Some(Node::Directory(_))) => Some(&[Cause::IsDirectory, Cause::Exists]),
            _ => None,
        };
        let (from, new) = (Name::from(called), Name::from(to.as_str()));
        let renamed = self.files.rename((handle, &from).0, (handle, &from).1, &to_handle, &new).await;
        if self.hold(&format!("{what} to {to_directory:?} {to:?} ({target:?})"), renamed, refused).is_some()
            && !is_same
            && !is_one_file
        {
            let node = self.names_mut(directory).remove(called);
            self.names_mut(&to_directory).insert(to, node.unwrap());
        }
    }

    async fn link(&mut self, what: &str, directory: &Option<String>, handle: &Handle, called: &str) {
        let Some(Node::File(number)) = self.names(directory).get(called).cloned() else { return };
        let (to_directory, to_handle) = self.directory().await;
        let to = self.name();
        let refused = self.names(&to_directory).contains_key(&to).then_some(&[Cause::Exists][..]);
        let found = self.files.lookup(handle, &Name::from(called)).await.unwrap();
        let linked = self.files.link(&found.file, &to_handle, &Name::from(to.as_str())).await;
        if self.hold(&format!("{what} as {to_directory:?} {to:?}"), linked, refused).is_some() {
            self.names_mut(&to_directory).insert(to, Node::File(number));
        }
    }

    async fn list(&self, directory: &Handle) -> Vec<String> {
        let transfer = self.files.transfer(directory).await.unwrap();
        let mut listing = self.files.list(directory, transfer);
        let mut names = Vec::new();
        while let Some(entry) = listing.next().await.unwrap() {
            names.push(String::from_utf8(entry.name.0.to_vec()).unwrap());
        }
        names.sort();
        names
    }

    /// At the end: each name stands for what the model says, and there is no other name.
    async fn judge(&self) {
        let mut left = vec![(self.root.clone(), &self.tree)];
        while let Some((handle, names)) = left.pop() {
            assert_eq!(self.list(&handle).await, names.keys().cloned().collect::<Vec<_>>());
            for (called, node) in names {
                let found = self.files.lookup(&handle, &Name::from(called.as_str())).await.unwrap();
                match node {
                    Node::Directory(names) => {
                        assert_eq!(found.attributes.file_type, FileType::Directory);
                        left.push((found.file, names));
                    }
                    Node::Link(target) => {
                        assert_eq!(self.files.readlink(&found.file).await.unwrap(), target.as_bytes());
                    }
                    Node::File(number) => {
                        let file = self.files.open(found, Access::Read).await.unwrap();
                        self.look_at(&file, *number).await;
                        file.close().await.unwrap();
                    }
                }
            }
        }
    }
}

/// How many names a file has.
fn count(names: &BTreeMap<String, Node>, number: usize, links: &mut u64) {
    for node in names.values() {
        match node {
            Node::File(file) => *links += u64::from(*file == number),
            Node::Directory(names) => count(names, number, links),
            Node::Link(_) => {}
        }
    }
}
