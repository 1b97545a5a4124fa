//! Minor version 0: registering the client (RFC 7530 sections 9.1.1, 16.33, 16.34).
//!
//! The server makes its own connections for calls. If the embedder does not listen, the client names an invalid
//! address, and gets no delegations.

use super::{Error, Inner, standing::Known};
use rpcrdma_nfs::v4::{
    Args, Op, Outcome,
    ops::{self, CallbackClient, ClientOwner, NetAddress},
};
use rpcrdma_oncrpc::{Netid, universal_address};

/// An address that no host has.
const NO_ADDRESS: &str = "0.0.0.0.0.0";

impl Inner {
    /// SETCLIENTID and SETCLIENTID_CONFIRM.
    pub(super) async fn set_client_id(&self) -> Result<Known, Error> {
        let address = match (&self.options.callbacks, self.options.callback_address) {
            (Some(_), Some(address)) => NetAddress {
                netid: Netid::tcp(&address).as_str().into(),
                address: universal_address(&address).as_str().into(),
            },
            _ => NetAddress { netid: "tcp".into(), address: NO_ADDRESS.into() },
        };
        let callback_ident = self.env.random.next_u32();
        if let Some(callbacks) = &self.options.callbacks {
            callbacks.called(callback_ident);
        }
        let set = ops::SetClientId {
            owner: ClientOwner { verifier: self.verifier, name: self.name.clone() },
            callback: CallbackClient { program: ops::TRANSIENT_PROGRAM, address },
            callback_ident,
        };
        let ops::SetClientIdOk { client, confirm } = match self.alone(Args::SetClientId(Box::new(set))).await? {
            Outcome::SetClientId(Ok(known)) => known,
            outcome => return Err(self.refused(Op::SetClientId, outcome.status())),
        };
        let confirm = ops::SetClientIdConfirm { client, confirm };
        match self.alone(Args::SetClientIdConfirm(confirm)).await? {
            Outcome::SetClientIdConfirm(Ok(())) => Ok(Known { id: client, sequence: 0 }),
            outcome => Err(self.refused(Op::SetClientIdConfirm, outcome.status())),
        }
    }
}
