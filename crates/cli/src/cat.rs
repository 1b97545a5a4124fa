//! `rpcrdma cat`.

use crate::{
    args::CatArgs,
    copy::{DEPTH, block_size},
    session::Sessions,
    transports::Options,
};
use anyhow::{Context, Result};
use rpcrdma_nfs_client::Reader;
use std::io::Write;

pub(crate) async fn run(args: CatArgs) -> Result<()> {
    let mut sessions = Sessions::new(Options { no_crc: args.no_crc, capture: args.capture, ..Options::default() })?;
    let mut out = std::io::stdout().lock();
    for url in &args.urls {
        let (session, path) = sessions.open(url).await?;
        let found = session.find(&path, true).await?;
        let size = found.attributes.size;
        let end = args.length.map_or(u64::MAX, |length| args.offset.saturating_add(length));
        let (block, depth) = block_size(end.min(size).saturating_sub(args.offset), session.transfer.read, DEPTH);
        let mut reader = Reader::new(session.nfs.clone(), found.file, args.offset, end, block, depth).expecting(size);
        while let Some(block) = reader.next().await.with_context(|| crate::names::escaped(&url.path))? {
            out.write_all(&block.data)?;
        }
    }
    out.flush()?;
    Ok(())
}
