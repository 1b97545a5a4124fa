//! `rpcrdma rm`.

use super::{Connecting, Errors, tree::Tree};
use crate::{
    place::Place,
    session::{Session, Sessions},
};
use anyhow::{Result, bail, ensure};
use clap::Args;
use rpcrdma::client::NfsUrl;
use rpcrdma_nfs::attr::FileType;

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Also remove directories and everything in them; symbolic links are removed, not followed
    #[arg(short)]
    recursive: bool,
    /// Files to remove
    #[arg(required = true)]
    urls: Vec<NfsUrl>,
    #[command(flatten)]
    pub(crate) connecting: Connecting,
}

pub(crate) async fn run(args: RmArgs) -> Result<()> {
    let mut sessions = Sessions::new(args.connecting.clone().into())?;
    let mut errors = Errors::default();
    for url in &args.urls {
        let told = errors.0;
        let removed = async {
            let (session, path) = sessions.open(url).await?;
            remove(&session, &path, args.recursive, &url.path, &mut errors).await?;
            // What remains has been reported.
            if errors.0 == told { args.connecting.done("rm", &url.path, None) } else { Ok(()) }
        };
        let removed = removed.await;
        errors.check(&url.path, removed)?;
    }
    errors.finish()
}

async fn remove(session: &Session, path: &[u8], recursive: bool, shown: &[u8], errors: &mut Errors) -> Result<()> {
    let place = Place::find(session, path).await?;
    let found = session.files.lookup(&place.directory, &place.name).await?;
    if found.attributes.file_type != FileType::Directory {
        ensure!(!place.slash, "is not a directory");
        session.files.remove(&place.directory, &place.name).await?;
        return Ok(());
    }
    if !recursive {
        bail!("is a directory; remove it with -r");
    }
    Tree::new(session, shown, errors).remove(place.directory, place.name, found.file).await
}
