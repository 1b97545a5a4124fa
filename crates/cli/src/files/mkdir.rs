//! `rpcrdma mkdir`.

use super::{Connecting, Errors};
use crate::{
    place::{Place, no_directory},
    session::{Session, Sessions},
};
use anyhow::{Result, ensure};
use clap::Args;
use rpcrdma::client::NfsUrl;
use rpcrdma_nfs::attr::{FileType, NewAttributes};
use rustix::fs::Mode;

#[derive(Debug, Args)]
pub(crate) struct MkdirArgs {
    /// Also make the directories above that are missing; a directory that exists already is not an error
    #[arg(short)]
    parents: bool,
    /// Directories to make
    #[arg(required = true)]
    urls: Vec<NfsUrl>,
    #[command(flatten)]
    pub(crate) connecting: Connecting,
}

pub(crate) async fn run(args: MkdirArgs) -> Result<()> {
    let mut sessions = Sessions::new(args.connecting.clone().into())?;
    let mut errors = Errors::default();
    let mode = 0o777 & !umask();
    for url in &args.urls {
        let made = async {
            let (session, path) = sessions.open(url).await?;
            match args.parents {
                true => make_all(&session, &path, mode).await?,
                false => make(&session, &path, mode).await?,
            }
            args.connecting.done("mkdir", &url.path, None)
        };
        let made = made.await;
        errors.check(&url.path, made)?;
    }
    errors.finish()
}

/// The bits that new files of this process do not get.
pub(crate) fn umask() -> u32 {
    // It can only be read by setting it. Nothing else runs yet that makes files.
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.as_raw_mode()
}

async fn make(session: &Session, path: &[u8], mode: u32) -> Result<()> {
    let place = Place::find(session, path).await?;
    let attributes = NewAttributes { mode: Some(mode), ..Default::default() };
    session.files.mkdir(&place.directory, &place.name, attributes).await?;
    Ok(())
}

/// Makes every missing directory on the path.
async fn make_all(session: &Session, path: &[u8], mode: u32) -> Result<()> {
    let ends = path.iter().enumerate().skip(1).filter(|(_, octet)| **octet == b'/').map(|(at, _)| at);
    for end in ends.chain([path.len()]) {
        let part = &path[..end];
        match session.files.walk(&session.root, part, true).await {
            Ok(found) => {
                let is_directory = found.attributes.file_type == FileType::Directory;
                if is_directory {
                    continue;
                }
                return Err(no_directory(session, part));
            }
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error.into()),
        }
        let Err(error) = make(session, part, mode).await else { continue };
        let nfs = error.downcast_ref::<rpcrdma_nfs_client::Error>();
        ensure!(nfs.is_some_and(rpcrdma_nfs_client::Error::exists), error);
        // Another program was faster; or the name is a symbolic link to nowhere.
        let there = session.files.walk(&session.root, part, true).await;
        ensure!(there.is_ok_and(|found| found.attributes.file_type == FileType::Directory), error);
    }
    Ok(())
}
