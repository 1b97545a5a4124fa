//! `rpcrdma ls`.

use crate::{
    args::ClientArgs,
    depth::{MAX_DEPTH, TooDeep},
    files::Errors,
    names,
    session::{Session, Sessions},
};
use anyhow::{Result, ensure};
use bytes::Bytes;
use clap::Args;
use rpcrdma::client::NfsUrl;
use rpcrdma_nfs::{
    attr::{Attributes, FileType, Who},
    v4::MAX_PRINCIPAL_BYTES,
};
use rpcrdma_nfs_client::Handle;
use serde_json::{Map, Value};
use std::io::{BufWriter, StdoutLock, Write};

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct LsArgs {
    /// Directories and files to list
    #[arg(required = true)]
    pub(crate) urls: Vec<NfsUrl>,
    /// Show for each file its mode, number of links, owner, group, size in bytes and time of modification
    #[arg(short)]
    pub(crate) long: bool,
    /// Also list the directories below, at every depth
    #[arg(short = 'R')]
    pub(crate) recursive: bool,
    /// With -l: print sizes with units, such as 1.50 GiB
    #[arg(short = 'h', long, requires = "long", conflicts_with = "json")]
    pub(crate) human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// The most memory for the entries of one directory, to sort them: some millions of entries.
const LISTED_BYTES: usize = 1 << 30;

/// A line of the listing.
struct Line {
    name: Vec<u8>,
    file: Handle,
    attributes: Attributes,
    target: Option<Bytes>,
}

pub(crate) async fn run(args: LsArgs) -> Result<()> {
    let mut sessions = Sessions::new(args.client.clone().into())?;
    let mut errors = Errors::default();
    let mut directories = Vec::new();
    let mut lister = Lister { args: &args, out: BufWriter::new(std::io::stdout().lock()), sections: 0 };
    // Files come first, as in ls.
    for url in &args.urls {
        let listed = async {
            let (session, path) = sessions.open(url).await?;
            let found = session.find(&path, true).await?;
            if found.attributes.file_type == FileType::Directory {
                directories.push((session, url, found.file));
                return Ok(());
            }
            lister.sections = 1;
            let name = if args.urls.len() > 1 { &url.path } else { url.last_name().unwrap_or(b"/") };
            let line = Line { name: name.to_vec(), file: found.file, attributes: found.attributes, target: None };
            lister.print(&line, None)
        };
        let listed = listed.await;
        errors.check(&url.path, listed)?;
    }
    for (session, url, directory) in directories {
        let listed = lister.directory(&session, url, directory, &mut errors).await;
        lister.out.flush()?;
        errors.check(&url.path, listed)?;
    }
    lister.out.flush()?;
    errors.finish()
}

struct Lister<'a> {
    args: &'a LsArgs,
    out: BufWriter<StdoutLock<'static>>,
    /// How many lists have begun: an empty line stands between them.
    sections: u64,
}

impl Lister<'_> {
    /// Lists a directory and, if asked to, those below it, in the order of `ls -R`. A directory that cannot be read is
    /// reported, and the others are listed.
    async fn directory(&mut self, session: &Session, url: &NfsUrl, top: Handle, errors: &mut Errors) -> Result<()> {
        let mut to_do = vec![(url.path.clone(), top, 1)];
        while let Some((path, directory, depth)) = to_do.pop() {
            let lines = match self.read(session, &directory).await {
                Ok(lines) => lines,
                Err(error) => {
                    self.out.flush()?;
                    errors.check(&path, Err(error))?;
                    continue;
                }
            };
            self.heading(&path)?;
            for line in &lines {
                self.print(line, Some(&path))?;
            }
            if self.args.recursive {
                let below = lines.into_iter().filter(|line| line.attributes.file_type == FileType::Directory);
                let below: Vec<_> = below.map(|line| (names::join(&path, &line.name), line.file, depth + 1)).collect();
                if depth >= MAX_DEPTH && !below.is_empty() {
                    return Err(TooDeep.into());
                }
                to_do.extend(below.into_iter().rev());
            }
        }
        Ok(())
    }

    /// Says which directory is listed, where there may be several.
    fn heading(&mut self, path: &[u8]) -> Result<()> {
        if self.args.client.json || !(self.args.recursive || self.args.urls.len() > 1) {
            return Ok(());
        }
        self.out.write_all(if self.sections > 0 { b"\n" } else { b"" })?;
        self.sections += 1;
        self.out.write_all(&names::for_output(path))?;
        Ok(self.out.write_all(b":\n")?)
    }

    async fn read(&self, session: &Session, directory: &Handle) -> Result<Vec<Line>> {
        let files = &session.files;
        let mut listing = files.list(directory, session.transfer);
        let (mut lines, mut held) = (Vec::new(), 0);
        while let Some(entry) = listing.next().await? {
            let name = entry.name.as_slice().to_vec();
            let (file, attributes) = match files.found(directory, entry).await {
                Ok(found) => (found.file, found.attributes),
                // It was removed meanwhile.
                Err(error) if error.is_absent() => continue,
                Err(error) => return Err(error.into()),
            };
            let wanted = attributes.file_type == FileType::Symlink && (self.args.long || self.args.client.json);
            let target = if wanted { Some(files.readlink(&file).await?) } else { None };
            held += size_of::<Line>() + name.len() + target.as_ref().map_or(0, Bytes::len);
            held += attributes.named.as_ref().map_or(0, |named| size_of_val(&**named) + 2 * MAX_PRINCIPAL_BYTES);
            ensure!(held <= LISTED_BYTES, "has more than {} MiB of entries, or no end", LISTED_BYTES >> 20);
            lines.push(Line { name, file, attributes, target });
        }
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(lines)
    }

    fn print(&mut self, line: &Line, directory: Option<&[u8]>) -> Result<()> {
        if self.args.client.json {
            let mut object = Map::new();
            if let Some(directory) = directory {
                names::insert_json(&mut object, "directory", directory);
            }
            names::insert_json(&mut object, "name", &line.name);
            insert_attributes(&mut object, &line.attributes);
            if let Some(target) = &line.target {
                names::insert_json(&mut object, "target", target);
            }
            writeln!(self.out, "{}", names::json(&Value::Object(object)))?;
            return Ok(());
        }
        if self.args.long {
            let a = &line.attributes;
            let mode = names::mode(a.file_type, a.mode);
            let size = match a.file_type {
                FileType::Block | FileType::Character => format!("{},{}", a.device.major, a.device.minor),
                _ => names::size(a.size, self.args.human_readable),
            };
            let time = names::time(a.modified);
            write!(
                self.out,
                "{mode} {:>3} {:>5} {:>5} {size:>12} {time} ",
                a.links,
                names::who(&a.owner()),
                names::who(&a.group())
            )?;
        }
        self.out.write_all(&names::for_output(&line.name))?;
        if let Some(target) = &line.target {
            self.out.write_all(b" -> ")?;
            self.out.write_all(&names::for_output(target))?;
        }
        self.out.write_all(b"\n")?;
        Ok(())
    }
}

/// Attributes as members of a JSON object.
pub(crate) fn insert_attributes(object: &mut Map<String, Value>, a: &Attributes) {
    object.insert("type".into(), names::file_type(a.file_type).into());
    object.insert("mode".into(), format!("{:04o}", a.mode & 0o7777).into());
    object.insert("links".into(), a.links.into());
    object.insert("uid".into(), a.uid.into());
    object.insert("gid".into(), a.gid.into());
    for (member, who) in [("owner", a.owner()), ("group", a.group())] {
        if let Who::Name(name) = who {
            names::insert_json(object, member, &name);
        }
    }
    object.insert("size".into(), a.size.into());
    object.insert("used".into(), a.used.into());
    object.insert("file_id".into(), a.file_id.into());
    object.insert("modified".into(), names::time(a.modified).into());
}
