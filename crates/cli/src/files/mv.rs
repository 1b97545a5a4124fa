//! `rpcrdma mv`.

use super::{Connecting, Errors};
use crate::{
    failure::At,
    names::join,
    place::{Place, Target},
    session::Sessions,
};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rpcrdma::client::NfsUrl;
use rpcrdma_nfs::attr::FileType;
use std::sync::Arc;

#[derive(Debug, Args)]
pub(crate) struct MvArgs {
    /// Files and directories to move
    #[arg(required = true)]
    urls: Vec<NfsUrl>,
    /// Target in the same export of the same server: a directory that exists, or the new name
    target: NfsUrl,
    #[command(flatten)]
    pub(crate) connecting: Connecting,
}

pub(crate) async fn run(args: MvArgs) -> Result<()> {
    let mut sessions = Sessions::new(args.connecting.clone().into())?;
    let (there, path) = sessions.open(&args.target).await.with_context(|| At::new(&args.target.path))?;
    let target = Target::find(&there, &path).await.with_context(|| At::new(&args.target.path))?;
    ensure!(
        args.urls.len() == 1 || matches!(target, Target::Directory(_)),
        "{} is not a directory: several files can be moved only into one",
        crate::names::escaped(&args.target.path)
    );
    let mut errors = Errors::default();
    for url in &args.urls {
        let moved = async {
            let (here, path) = sessions.open(url).await?;
            if !Arc::ptr_eq(&here, &there) {
                bail!("a file can be moved within one export of one server only; copy it and remove it here");
            }
            let from = Place::find(&here, &path).await?;
            if from.slash {
                let found = here.find(&path, false).await?;
                ensure!(found.attributes.file_type == FileType::Directory, "is not a directory");
            }
            let to = target.for_file(&from.name);
            let renamed = here.files.rename(&from.directory, &from.name, &to.directory, &to.name).await;
            let new = match &target {
                Target::Directory(_) => join(&args.target.path, from.name.as_slice()),
                Target::Name(..) => args.target.path.clone(),
            };
            renamed.with_context(|| format!("to {}", crate::names::escaped(&new)))?;
            args.connecting.done("mv", &url.path, Some(("to", &new)))
        };
        let moved = moved.await;
        errors.check(&url.path, moved)?;
    }
    errors.finish()
}
