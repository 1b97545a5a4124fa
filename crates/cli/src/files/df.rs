//! `rpcrdma df`.

use crate::{args::ClientArgs, names, session::Sessions, url::NfsUrl};
use anyhow::{Context, Result};
use clap::Args;
use indicatif::HumanBytes;
use rpcrdma_nfs::v3::FileSystemStatusOk;
use serde_json::{Map, Value};
use std::io::Write;

#[derive(Debug, Args)]
pub(crate) struct DfArgs {
    /// Which file systems, by any file in them
    #[arg(required = true)]
    urls: Vec<NfsUrl>,
    #[command(flatten)]
    client: ClientArgs,
}

pub(crate) async fn run(args: DfArgs) -> Result<()> {
    let json = args.client.json;
    let mut sessions = Sessions::new(args.client.clone().into())?;
    let mut out = std::io::stdout().lock();
    if !json {
        let (size, used, available, files) = ("Size", "Used", "Avail", "Free files");
        writeln!(out, "{size:>12} {used:>12} {available:>12} Use% {files:>12} Path")?;
    }
    for url in &args.urls {
        let (session, path) = sessions.open(url).await?;
        let found = session.find(&path, true).await?;
        let status = session.nfs.fsstat(&found.file).await.with_context(|| names::escaped(&url.path))?;
        let used = status.total_octets.saturating_sub(status.free_octets);
        if json {
            let mut object = Map::new();
            names::insert_json(&mut object, "path", &url.path);
            for (key, value) in [
                ("size", status.total_octets),
                ("used", used),
                ("free", status.free_octets),
                ("available", status.available_octets),
                ("files", status.total_files),
                ("files_free", status.free_files),
                ("files_available", status.available_files),
            ] {
                object.insert(key.into(), value.into());
            }
            writeln!(out, "{}", Value::Object(object))?;
            continue;
        }
        let human = |octets: u64| HumanBytes(octets).to_string();
        let (size, available) = (human(status.total_octets), human(status.available_octets));
        let (used, percent, files) = (human(used), percent(&status), status.available_files);
        write!(out, "{size:>12} {used:>12} {available:>12} {percent:>4} {files:>12} ")?;
        out.write_all(&names::for_output(&url.path))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// How much of what users can have is in use, rounded up, as df(1) counts it.
fn percent(status: &FileSystemStatusOk) -> String {
    let used = u128::from(status.total_octets.saturating_sub(status.free_octets));
    match used + u128::from(status.available_octets) {
        0 => "-".into(),
        all => format!("{}%", (used * 100).div_ceil(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(total: u64, free: u64, available: u64) -> FileSystemStatusOk {
        FileSystemStatusOk {
            attributes: None,
            total_octets: total,
            free_octets: free,
            available_octets: available,
            total_files: 0,
            free_files: 0,
            available_files: 0,
            invariant_seconds: 0,
        }
    }

    #[test]
    fn what_only_root_may_use_does_not_count_as_free() {
        assert_eq!(percent(&status(100, 50, 50)), "50%");
        assert_eq!(percent(&status(100, 50, 0)), "100%");
        assert_eq!(percent(&status(1000, 999, 999)), "1%");
    }

    /// A server may say anything.
    #[test]
    fn nonsense_is_no_overflow() {
        assert_eq!(percent(&status(0, 0, 0)), "-");
        assert_eq!(percent(&status(1, u64::MAX, u64::MAX)), "0%");
        assert_eq!(percent(&status(u64::MAX, 0, u64::MAX)), "50%");
    }
}
