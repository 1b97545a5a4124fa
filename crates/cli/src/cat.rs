//! `rpcrdma cat`.

use crate::{
    args::{ClientArgs, parse_bytes},
    copy::close_after,
    failure::At,
    octets::Octets,
    session::Sessions,
};
use anyhow::{Context, Result};
use clap::Args;
use rpcrdma::client::NfsUrl;
use rpcrdma_nfs_client::Access;
use std::io::Write;

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// Files to write
    #[arg(required = true)]
    pub(crate) urls: Vec<NfsUrl>,
    /// Begin at this offset in bytes of each file, such as 4096 or 5G; of a shorter file, write nothing
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_bytes)]
    pub(crate) offset: u64,
    /// Write at most this many bytes of each file, such as 512 or 16M (default: to the end of the file)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) length: Option<u64>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

pub(crate) async fn run(args: CatArgs) -> Result<()> {
    let mut sessions = Sessions::new(args.client.into())?;
    let mut out = std::io::stdout().lock();
    for url in &args.urls {
        let at = || At::new(&url.path);
        let (session, path) = sessions.open(url).await.with_context(at)?;
        let found = session.find(&path, true).await.with_context(at)?;
        let size = found.attributes.size;
        let end = args.length.map_or(u64::MAX, |length| args.offset.saturating_add(length));
        let file = session.files.open(found, Access::Read).await.with_context(at)?;
        let mut octets = Octets::new(&session, file.clone(), size, args.offset, end);
        let written = async {
            while let Some(block) = octets.next().await.with_context(at)? {
                out.write_all(&block.data)?;
            }
            Ok(())
        };
        let written = written.await;
        drop(octets);
        close_after(file, written).await?;
    }
    out.flush()?;
    Ok(())
}
