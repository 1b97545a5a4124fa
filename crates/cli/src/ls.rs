//! `rpcrdma ls`.

use crate::{
    args::{ClientArgs, LsArgs},
    names,
    session::{Session, Sessions},
    transports::Options,
};
use anyhow::{Context, Result};
use rpcrdma_nfs::v3::{Attributes, FileType, Handle, Path};
use rpcrdma_nfs_client::Listing;
use serde_json::{Map, Value};
use std::io::{BufWriter, StdoutLock, Write};

impl From<ClientArgs> for Options {
    fn from(args: ClientArgs) -> Self {
        Options { no_crc: args.no_crc, capture: args.capture, ..Options::default() }
    }
}

/// A line of the listing.
struct Line {
    name: Vec<u8>,
    file: Handle,
    attributes: Attributes,
    target: Option<Path>,
}

pub(crate) async fn run(args: LsArgs) -> Result<()> {
    let mut sessions = Sessions::new(args.client.clone().into())?;
    let (session, path) = sessions.open(&args.url).await?;
    let found = session.find(&path, true).await?;
    let mut lister = Lister { session: &session, args: &args, out: BufWriter::new(std::io::stdout().lock()) };
    if found.attributes.file_type == FileType::Directory {
        lister.directory(args.url.path.clone(), found.file).await?;
    } else {
        let name = args.url.last_name().unwrap_or(b"/").to_vec();
        lister.print(&Line { name, file: found.file, attributes: found.attributes, target: None }, None)?;
    }
    lister.out.flush()?;
    Ok(())
}

struct Lister<'a> {
    session: &'a Session,
    args: &'a LsArgs,
    out: BufWriter<StdoutLock<'static>>,
}

impl Lister<'_> {
    /// Lists a directory and, where asked for, those below it, in the order in which `ls -R` does.
    async fn directory(&mut self, path: Vec<u8>, directory: Handle) -> Result<()> {
        let mut to_do = vec![(path, directory)];
        let mut first = true;
        while let Some((path, directory)) = to_do.pop() {
            let lines = self.read(&directory).await.with_context(|| names::escaped(&path))?;
            if self.args.recursive && !self.args.client.json {
                let gap = if first { "" } else { "\n" };
                self.out.write_all(gap.as_bytes())?;
                self.out.write_all(&names::for_output(&path))?;
                self.out.write_all(b":\n")?;
            }
            first = false;
            for line in &lines {
                self.print(line, Some(&path))?;
            }
            if self.args.recursive {
                let below = lines.into_iter().filter(|line| line.attributes.file_type == FileType::Directory);
                let below: Vec<_> = below.map(|line| (join(&path, &line.name), line.file)).collect();
                to_do.extend(below.into_iter().rev());
            }
        }
        Ok(())
    }

    async fn read(&self, directory: &Handle) -> Result<Vec<Line>> {
        let nfs = &self.session.nfs;
        let mut listing = Listing::new(nfs.clone(), directory.clone(), self.session.transfer);
        let mut lines = Vec::new();
        while let Some(entry) = listing.next().await? {
            let (file, attributes) = match (entry.file, entry.attributes) {
                (Some(file), Some(attributes)) => (file, attributes),
                _ => match nfs.lookup(directory, &entry.name).await {
                    Ok(found) => match found.attributes {
                        Some(attributes) => (found.file, attributes),
                        None => (found.file.clone(), nfs.getattr(&found.file).await?),
                    },
                    // Removed while we look.
                    Err(error) if error.status() == Some(rpcrdma_nfs::v3::Status::NOENT) => continue,
                    Err(error) => return Err(error.into()),
                },
            };
            let wanted = attributes.file_type == FileType::Symlink && (self.args.long || self.args.client.json);
            let target = if wanted { Some(nfs.readlink(&file).await?) } else { None };
            lines.push(Line { name: entry.name.as_slice().to_vec(), file, attributes, target });
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
                names::insert_json(&mut object, "target", target.as_slice());
            }
            writeln!(self.out, "{}", Value::Object(object))?;
            return Ok(());
        }
        if self.args.long {
            let a = &line.attributes;
            let mode = names::mode(a.file_type, a.mode);
            let size = match a.file_type {
                FileType::Block | FileType::Character => format!("{},{}", a.device.major, a.device.minor),
                _ => a.size.to_string(),
            };
            let time = names::time(a.modified);
            write!(self.out, "{mode} {:>3} {:>5} {:>5} {size:>12} {time} ", a.links, a.uid, a.gid)?;
        }
        self.out.write_all(&names::for_output(&line.name))?;
        if let Some(target) = &line.target {
            self.out.write_all(b" -> ")?;
            self.out.write_all(&names::for_output(target.as_slice()))?;
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
    object.insert("size".into(), a.size.into());
    object.insert("used".into(), a.used.into());
    object.insert("file_id".into(), a.file_id.into());
    object.insert("modified".into(), names::time(a.modified).into());
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
