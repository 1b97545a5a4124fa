//! `rpcrdma cat`.

use crate::{args::CatArgs, failure::At, octets::Octets, session::Sessions};
use anyhow::{Context, Result};
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
        let mut octets = Octets::new(&session, &found.file, size, args.offset, end);
        while let Some(block) = octets.next().await.with_context(at)? {
            out.write_all(&block.data)?;
        }
    }
    out.flush()?;
    Ok(())
}
