//! `rpcrdma df`.

use super::Errors;
use crate::{args::ClientArgs, names, session::Sessions};
use anyhow::Result;
use clap::Args;
use rpcrdma::client::NfsUrl;
use rpcrdma_nfs_client::Space;
use serde_json::{Map, Value};
use std::io::Write;

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct DfArgs {
    /// Any file or directory of each file system to show
    #[arg(required = true)]
    urls: Vec<NfsUrl>,
    /// Print sizes with units, such as 1.50 GiB
    #[arg(short = 'h', long, conflicts_with = "json")]
    human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

pub(crate) async fn run(args: DfArgs) -> Result<()> {
    let json = args.client.json;
    let mut sessions = Sessions::new(args.client.clone().into())?;
    let mut out = std::io::stdout().lock();
    if !json {
        let (size, used, available, files) = ("Size", "Used", "Avail", "Free files");
        writeln!(out, "{size:>15} {used:>15} {available:>15} Use% {files:>12} Path")?;
    }
    let mut errors = Errors::default();
    for url in &args.urls {
        let asked = async {
            let (session, path) = sessions.open(url).await?;
            let found = session.find(&path, true).await?;
            Ok(session.files.statfs(&found.file).await?)
        };
        let status = match asked.await {
            Ok(status) => status,
            Err(error) => {
                errors.check(&url.path, Err(error))?;
                continue;
            }
        };
        let used = status.total_bytes.saturating_sub(status.free_bytes);
        if json {
            let mut object = Map::new();
            names::insert_json(&mut object, "path", &url.path);
            for (key, value) in [
                ("size", status.total_bytes),
                ("used", used),
                ("free", status.free_bytes),
                ("available", status.available_bytes),
                ("files", status.total_files),
                ("files_free", status.free_files),
                ("files_available", status.available_files),
            ] {
                object.insert(key.into(), value.into());
            }
            writeln!(out, "{}", names::json(&Value::Object(object)))?;
            continue;
        }
        let human = |bytes: u64| names::size(bytes, args.human_readable);
        let (size, available) = (human(status.total_bytes), human(status.available_bytes));
        let (used, percent, files) = (human(used), percent(&status), status.available_files);
        write!(out, "{size:>15} {used:>15} {available:>15} {percent:>4} {files:>12} ")?;
        out.write_all(&names::for_output(&url.path))?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    errors.finish()
}

/// How much of what users can have is in use, rounded up, as df(1) counts it.
fn percent(status: &Space) -> String {
    let used = u128::from(status.total_bytes.saturating_sub(status.free_bytes));
    match used + u128::from(status.available_bytes) {
        0 => "-".into(),
        all => format!("{}%", (used * 100).div_ceil(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(total: u64, free: u64, available: u64) -> Space {
        Space { total_bytes: total, free_bytes: free, available_bytes: available, ..Space::default() }
    }

    #[test]
    fn what_only_root_may_use_does_not_count_as_free() {
        assert_eq!(percent(&status(100, 50, 50)), "50%");
        assert_eq!(percent(&status(100, 50, 0)), "100%");
        assert_eq!(percent(&status(1000, 999, 999)), "1%");
    }

    /// A server may send any numbers.
    #[test]
    fn nonsense_is_no_overflow() {
        assert_eq!(percent(&status(0, 0, 0)), "-");
        assert_eq!(percent(&status(1, u64::MAX, u64::MAX)), "0%");
        assert_eq!(percent(&status(u64::MAX, 0, u64::MAX)), "50%");
    }
}
