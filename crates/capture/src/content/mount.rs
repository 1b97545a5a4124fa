//! MOUNT.

use super::{Describe, Operation};
use rpcrdma_nfs::{
    mount::{Exports, ListExports, ListMounts, Mount, MountReply, MountReply1, Mounts, Unmount},
    v3::Handle,
};

impl Describe for Mount {
    fn describe(&self, to: &mut Operation) {
        to.name("path", &self.path.0);
    }
}

impl Describe for Unmount {
    fn describe(&self, to: &mut Operation) {
        to.name("path", &self.path.0);
    }
}

impl Describe for ListExports {
    fn describe(&self, _: &mut Operation) {}
}

impl Describe for ListMounts {
    fn describe(&self, _: &mut Operation) {}
}

impl Describe for MountReply {
    fn describe(&self, to: &mut Operation) {
        if let MountReply::Ok { root, flavors } = self {
            to.handle("root", root);
            // The flavour that the server prefers.
            if let Some(flavor) = flavors.first() {
                to.number("flavor", *flavor);
            }
        }
    }
}

impl Describe for MountReply1 {
    fn describe(&self, to: &mut Operation) {
        if let MountReply1::Ok(root) = self
            && let Ok(root) = Handle::new(root)
        {
            to.handle("root", &root);
        }
    }
}

impl Describe for Exports {
    fn describe(&self, to: &mut Operation) {
        to.number("entries", self.0.len() as u64);
    }
}

impl Describe for Mounts {
    fn describe(&self, to: &mut Operation) {
        to.number("entries", self.0.len() as u64);
    }
}
