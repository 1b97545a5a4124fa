//! `rpcrdma cat`.

use crate::{args::CatArgs, copy::close_after, failure::At, octets::Octets, session::Sessions};
use anyhow::{Context, Result};
use rpcrdma_nfs_client::Access;
use std::io::Write;

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
