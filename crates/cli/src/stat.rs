//! `rpcrdma stat`.

use crate::{args::ClientArgs, files::Errors, ls::insert_attributes, names, session::Sessions};
use anyhow::Result;
use clap::Args;
use rpcrdma::client::NfsUrl;
use rpcrdma_nfs::attr::FileType;
use serde_json::{Map, Value};
use std::io::Write;

#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    /// Files and directories to show
    #[arg(required = true)]
    pub(crate) urls: Vec<NfsUrl>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

pub(crate) async fn run(args: StatArgs) -> Result<()> {
    let mut sessions = Sessions::new(args.client.clone().into())?;
    let mut errors = Errors::default();
    let mut is_first = true;
    for url in &args.urls {
        let mut text = Vec::new();
        let told = match one(&mut sessions, url, args.client.json, &mut text).await {
            Ok(()) => {
                let gap = if is_first || args.client.json { "" } else { "\n" };
                is_first = false;
                let mut out = std::io::stdout().lock();
                out.write_all(gap.as_bytes()).and_then(|()| out.write_all(&text)).map_err(Into::into)
            }
            failed => failed,
        };
        errors.check(&url.path, told)?;
    }
    errors.finish()
}

/// Writes everything about a file to `out`.
async fn one(sessions: &mut Sessions, url: &NfsUrl, json: bool, out: &mut Vec<u8>) -> Result<()> {
    let (session, path) = sessions.open(url).await?;
    let found = session.find(&path, false).await?;
    let a = &found.attributes;
    let target = match a.file_type {
        FileType::Symlink => Some(session.files.readlink(&found.file).await?),
        _ => None,
    };
    let handle: String = found.file.as_slice().iter().map(|octet| format!("{octet:02x}")).collect();
    if json {
        let mut object = Map::new();
        names::insert_json(&mut object, "path", &url.path);
        insert_attributes(&mut object, a);
        object.insert("device".into(), serde_json::json!([a.device.major, a.device.minor]));
        object.insert("file_system".into(), a.file_system.into());
        object.insert("accessed".into(), names::time(a.accessed).into());
        object.insert("changed".into(), names::time(a.changed).into());
        object.insert("handle".into(), handle.into());
        if let Some(target) = target {
            names::insert_json(&mut object, "target", &target);
        }
        writeln!(out, "{}", names::json(&Value::Object(object)))?;
        return Ok(());
    }
    write!(out, "    path: ")?;
    out.write_all(&names::for_output(&url.path))?;
    if let Some(target) = target {
        write!(out, " -> ")?;
        out.write_all(&names::for_output(&target))?;
    }
    writeln!(out, "\n    type: {}", names::file_type(a.file_type))?;
    writeln!(out, "    size: {} bytes, {} in use", a.size, a.used)?;
    writeln!(out, "    mode: {:04o} {}", a.mode & 0o7777, names::mode(a.file_type, a.mode))?;
    writeln!(out, "   owner: {} group {}", names::who(&a.owner()), names::who(&a.group()))?;
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
