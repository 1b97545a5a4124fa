//! `rpcrdma mv`.

use super::{Connecting, Errors};
use crate::{
    place::{Place, Target},
    session::Sessions,
    url::NfsUrl,
};
use anyhow::{Result, bail, ensure};
use clap::Args;
use rpcrdma_nfs::v3::FileType;
use std::sync::Arc;

#[derive(Debug, Args)]
pub(crate) struct MvArgs {
    /// What to move
    #[arg(required = true)]
    urls: Vec<NfsUrl>,
    /// Where to, in the same export of the same server: a directory that exists, or the new name
    target: NfsUrl,
    #[command(flatten)]
    connecting: Connecting,
}

pub(crate) async fn run(args: MvArgs) -> Result<()> {
    let mut sessions = Sessions::new(args.connecting.clone().into())?;
    let (there, path) = sessions.open(&args.target).await?;
    let target = Target::find(&there, &path).await?;
    ensure!(
        args.urls.len() == 1 || matches!(target, Target::Directory(_)),
        "{} is no directory: several files can be moved only into one",
        crate::names::escaped(&args.target.path)
    );
    let mut errors = Errors::default();
    for url in &args.urls {
        let (here, path) = sessions.open(url).await?;
        let moved = async {
            if !Arc::ptr_eq(&here, &there) {
                bail!("a file can be moved within one export of one server only; copy it and remove it here");
            }
            let from = Place::find(&here, &path).await?;
            if from.slash {
                let found = here.find(&path, false).await?;
                ensure!(found.attributes.file_type == FileType::Directory, "is no directory");
            }
            let to = target.for_file(&from.name);
            here.nfs.rename(&from.directory, &from.name, &to.directory, &to.name).await?;
            Ok(())
        };
        let moved = moved.await;
        errors.check(&url.path, moved)?;
    }
    errors.finish()
}
