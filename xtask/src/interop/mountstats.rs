//! The counters of Linux's client: the line of `/proc/self/mountstats` about an RDMA transport.

use anyhow::Context as _;

/// The counters that jobs look at.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "printed as a whole")]
pub(super) struct RdmaTransport {
    pub(super) connects: u64,
    pub(super) sends: u64,
    pub(super) receives: u64,
    /// Replies that belong to no call.
    pub(super) bad_xids: u64,
    /// Calls with Read lists, Write lists, Reply chunks.
    pub(super) read_chunks: u64,
    pub(super) write_chunks: u64,
    pub(super) reply_chunks: u64,
    /// Calls that the client could not put into a message, mostly because it had to wait for its own memory regions.
    pub(super) failed_marshal: u64,
    /// Replies that the client did not understand.
    pub(super) bad_replies: u64,
    /// Long calls.
    pub(super) nomsg_calls: u64,
    /// Calls after which the client had to invalidate something itself.
    pub(super) local_invalidations: u64,
}

/// How many counters Linux 6.12 writes after `xprt: rdma`.
const FIELDS: usize = 27;

/// The first RDMA transport in the text.
pub(super) fn first(text: &str) -> anyhow::Result<RdmaTransport> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("xprt:")).map(str::trim);
    let line = line.and_then(|line| line.strip_prefix("rdma ")).context("no RDMA transport in mountstats")?;
    let fields: Vec<u64> = line.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    if fields.len() < FIELDS {
        anyhow::bail!("mountstats tells {} counters of the transport, Linux 6.12 has {FIELDS}: {line}", fields.len());
    }
    Ok(RdmaTransport {
        connects: fields[2],
        sends: fields[5],
        receives: fields[6],
        bad_xids: fields[7],
        read_chunks: fields[10],
        write_chunks: fields[11],
        reply_chunks: fields[12],
        failed_marshal: fields[18],
        bad_replies: fields[19],
        nomsg_calls: fields[20],
        local_invalidations: fields[24],
    })
}

#[cfg(test)]
mod tests {
    use super::first;

    #[test]
    fn counters_are_found() {
        let text = "device x\n\txprt:\trdma 0 0 1 0 3 100 99 0 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 0\n";
        let found = first(text).unwrap();
        assert_eq!((found.connects, found.sends, found.receives), (1, 100, 99));
        assert_eq!((found.read_chunks, found.write_chunks, found.reply_chunks), (7, 8, 9));
        assert_eq!(
            (found.failed_marshal, found.bad_replies, found.nomsg_calls, found.local_invalidations),
            (15, 16, 17, 21)
        );
        assert!(first("nothing").is_err());
    }
}
