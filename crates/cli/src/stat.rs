//! `rpcrdma stat`.

use crate::{args::StatArgs, ls::insert_attributes, names, session::Sessions};
use anyhow::Result;
use rpcrdma_nfs::v3::FileType;
use serde_json::{Map, Value};
use std::io::Write;

pub(crate) async fn run(args: StatArgs) -> Result<()> {
    let mut sessions = Sessions::new(args.client.clone().into())?;
    let (session, path) = sessions.open(&args.url).await?;
    let found = session.find(&path, false).await?;
    let a = &found.attributes;
    let target = match a.file_type {
        FileType::Symlink => Some(session.nfs.readlink(&found.file).await?),
        _ => None,
    };
    let handle: String = found.file.as_slice().iter().map(|octet| format!("{octet:02x}")).collect();
    let mut out = std::io::stdout().lock();
    if args.client.json {
        let mut object = Map::new();
        names::insert_json(&mut object, "path", &args.url.path);
        insert_attributes(&mut object, a);
        object.insert("device".into(), serde_json::json!([a.device.major, a.device.minor]));
        object.insert("file_system".into(), a.file_system.into());
        object.insert("accessed".into(), names::time(a.accessed).into());
        object.insert("changed".into(), names::time(a.changed).into());
        object.insert("handle".into(), handle.into());
        if let Some(target) = target {
            names::insert_json(&mut object, "target", target.as_slice());
        }
        writeln!(out, "{}", Value::Object(object))?;
        return Ok(());
    }
    write!(out, "    path: ")?;
    out.write_all(&names::for_output(&args.url.path))?;
    if let Some(target) = target {
        write!(out, " -> ")?;
        out.write_all(&names::for_output(target.as_slice()))?;
    }
    writeln!(out, "\n    type: {}", names::file_type(a.file_type))?;
    writeln!(out, "    size: {} octets, {} in use", a.size, a.used)?;
    writeln!(out, "    mode: {:04o} {}", a.mode & 0o7777, names::mode(a.file_type, a.mode))?;
    writeln!(out, "   owner: {} group {}", a.uid, a.gid)?;
    writeln!(out, "   links: {}", a.links)?;
    if matches!(a.file_type, FileType::Block | FileType::Character) {
        writeln!(out, "  device: {},{}", a.device.major, a.device.minor)?;
    }
    writeln!(out, " file id: {} on file system {:#x}", a.file_id, a.file_system)?;
    writeln!(out, "accessed: {}", names::time(a.accessed))?;
    writeln!(out, "modified: {}", names::time(a.modified))?;
    writeln!(out, " changed: {}", names::time(a.changed))?;
    writeln!(out, "  handle: {handle}")?;
    Ok(())
}
