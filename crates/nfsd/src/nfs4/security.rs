//! Which security a file wants: SECINFO and SECINFO_NO_NAME (RFC 8881 sections 18.29, 18.45). Both take the current
//! file away, but not in minor version 0 (RFC 7530 section 16.31.4).

use super::compound::Compound;
use rpcrdma_nfs::v4::{
    List, Status,
    ops::{self, Answer, Flavour},
};

impl Compound {
    pub(super) async fn sec_info(&mut self, args: ops::SecInfo) -> Answer<ops::SecInfoOk> {
        let directory = self.current.clone();
        self.lookup(ops::Lookup { name: args.name }).await?;
        let told = self.told_flavours();
        if self.minor == 0 {
            self.current = directory;
        }
        told
    }

    pub(super) async fn sec_info_no_name(&mut self, args: ops::SecInfoNoName) -> Answer<ops::SecInfoOk> {
        if args.style == ops::SecInfoStyle::Parent {
            self.lookup_parent().await?;
        }
        self.told_flavours()
    }

    fn told_flavours(&mut self) -> Answer<ops::SecInfoOk> {
        self.current.take().ok_or(Status::NOFILEHANDLE)?;
        // The better one first: with AUTH_NONE everybody is nobody.
        Ok(ops::SecInfoOk { flavours: List(vec![Flavour::Sys, Flavour::None]) })
    }
}
