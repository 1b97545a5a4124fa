//! `rpcrdma ln`.

use super::Connecting;
use crate::{
    failure::{At, Usage},
    names::escaped,
    place::{Target, split_last},
    session::Sessions,
};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::Args;
use rpcrdma::client::NfsUrl;
use rpcrdma_nfs::attr::{FileType, NewAttributes};
use rpcrdma_nfs_client::Name;
use std::{ffi::OsString, os::unix::ffi::OsStrExt, sync::Arc};

/// The permissions of a symbolic link, which have no effect.
const LINK_MODE: u32 = 0o777;

#[derive(Debug, Args)]
pub(crate) struct LnArgs {
    /// Make a symbolic link
    #[arg(short)]
    symbolic: bool,
    /// URL of the file that gets a further name; with -s: the path that the symbolic link contains, unchanged and
    /// unchecked
    target: OsString,
    /// The new name; or a directory that exists, in which the link gets the last name of TARGET
    url: NfsUrl,
    #[command(flatten)]
    pub(crate) connecting: Connecting,
}

pub(crate) async fn run(args: LnArgs) -> Result<()> {
    if args.target.is_empty() {
        bail!(Usage("a symbolic link cannot be empty".into()));
    }
    let existing = if args.symbolic { None } else { Some(existing(&args.target)?) };
    let mut sessions = Sessions::new(args.connecting.clone().into())?;
    let here = || At::new(&args.url.path);
    let (there, path) = sessions.open(&args.url).await.with_context(here)?;
    let target = Target::find(&there, &path).await.with_context(here)?;
    let Some(existing) = existing else {
        let (_, own) = split_last(args.target.as_bytes());
        let named = !matches!(own, b"" | b"." | b"..") || matches!(target, Target::Name(..));
        ensure!(named, "{} gives no name for the link", escaped(args.target.as_bytes()));
        let place = target.for_file(&Name::from(own));
        let attributes = NewAttributes { mode: Some(LINK_MODE), ..Default::default() };
        let link = Bytes::copy_from_slice(args.target.as_bytes());
        let made = there.files.symlink(&place.directory, &place.name, attributes, link).await;
        made.with_context(here)?;
        return args.connecting.done("ln", &args.url.path, Some(("target", args.target.as_bytes())));
    };
    let (session, path) = sessions.open(&existing).await.with_context(|| At::new(&existing.path))?;
    ensure!(Arc::ptr_eq(&session, &there), "a file can have names within one export of one server only");
    let found = session.find(&path, false).await.with_context(|| At::new(&existing.path))?;
    let is_directory = found.attributes.file_type == FileType::Directory;
    ensure!(!is_directory, "{} is a directory: it has one name", escaped(&existing.path));
    let place = target.for_file(&Name::from(existing.last_name().unwrap_or_default()));
    let made = there.files.link(&found.file, &place.directory, &place.name).await;
    made.with_context(here)?;
    args.connecting.done("ln", &args.url.path, Some(("target", &existing.path)))
}

/// The URL of the file that gets a further name. Text that is not a URL is wrong usage.
fn existing(text: &OsString) -> Result<NfsUrl, Usage> {
    let parsed = match text.to_str() {
        Some(text) => text.parse::<NfsUrl>().map_err(|error| error.to_string()),
        None => Err("a URL is text; write other bytes as %XX".to_owned()),
    };
    parsed.map_err(|error| Usage(format!("{}: {error}; with -s it may be any path", text.display())))
}
