//! Owners, groups and the names in access control lists, as the caller of a COMPOUND sees them (RFC 8881 section 5.9).
//!
//! Kerberos principals get names, because machines that share Kerberos need not share numbers. Callers with AUTH_SYS
//! get numbers, because their credentials also have numbers. All callers may set names or numbers.

use super::compound::Compound;
use crate::owners::{Kind, OwnerNames, Untold};
use rpcrdma_nfs::{
    attr::Attributes,
    v4::{Ace, Acl, Attribute, Bitmap, Principal, Status, ace},
};
use rpcrdma_oncrpc::{ClientNetwork, Credential};
use rpcrdma_xdr::Encode as _;
use std::sync::Arc;

/// Both names of a file.
pub(super) const OF_FILE: Bitmap = Bitmap::of(&[Attribute::Owner, Attribute::Group]);

/// The owner and the group of a file, if they are sent as names.
#[derive(Default)]
pub(super) struct Named {
    pub(super) owner: Option<Principal>,
    pub(super) group: Option<Principal>,
}

/// Whether an entry is about a user or a group, unless it has a special name.
fn kind(entry: &Ace) -> Kind {
    if entry.flags & ace::IDENTIFIER_GROUP == 0 { Kind::User } else { Kind::Group }
}

/// The bytes of a list on the wire.
fn octets(acl: &Acl) -> usize {
    let mut encoder = rpcrdma_xdr::Encoder::new();
    acl.encode(&mut encoder);
    encoder.position()
}

impl Compound {
    /// The names of users and groups, if this caller gets names.
    pub(super) fn names(&self) -> Option<&Arc<OwnerNames>> {
        match self.context.credential {
            // NFS4-8881-5.9-c
            Credential::Gss(_) => self.server.names.get(),
            _ => None,
        }
    }

    /// The client network in whose turn the host is asked.
    fn network(&self) -> ClientNetwork {
        ClientNetwork::of(self.context.connection.peer.ip())
    }

    /// The owner and the group of a file by name, if the client asks for them and this caller gets names.
    pub(super) async fn named(&self, asked: &Bitmap, file: &Attributes) -> Named {
        match self.names() {
            Some(names) if !asked.and(&OF_FILE).is_empty() => Box::pin(self.names_of(names, asked, file)).await,
            _ => Named::default(),
        }
    }

    async fn names_of(&self, names: &OwnerNames, asked: &Bitmap, file: &Attributes) -> Named {
        let client = self.network();
        let mut named = Named::default();
        if asked.contains(Attribute::Owner) {
            named.owner = Some(names.told(Kind::User, file.uid, client).await);
        }
        if asked.contains(Attribute::Group) {
            named.group = Some(names.told(Kind::Group, file.gid, client).await);
        }
        named
    }

    /// A list of numbers as this caller gets it. If names would make it longer than `most` bytes, it keeps the numbers.
    pub(super) async fn named_acl(&self, acl: Acl, most: usize) -> Acl {
        let Some(names) = self.names() else { return acl };
        let client = self.network();
        let mut entries = acl.0.clone();
        for entry in &mut entries {
            if let Some(number) = entry.who.number() {
                entry.who = names.told(kind(entry), number, client).await;
            }
        }
        let named = entries.into();
        if octets(&named) <= most { named } else { acl }
    }

    /// The number of an owner or group that a client sets.
    ///
    /// # Errors
    /// BADOWNER if it is neither a number nor a known name; DELAY if it may be a name, but the host's databases do not
    /// answer (NFS4-8881-5.9-f).
    // NFS4-8881-5.9-b
    pub(super) async fn id(&self, kind: Kind, who: Option<Principal>) -> Result<Option<u32>, Status> {
        let Some(who) = who else { return Ok(None) };
        if let Some(number) = who.number() {
            return Ok(Some(number));
        }
        let names = self.server.names.get().ok_or(Status::BADOWNER)?;
        match Box::pin(names.id(kind, &who, self.network())).await {
            Ok(Some(id)) => Ok(Some(id)),
            Ok(None) => Err(Status::BADOWNER),
            Err(Untold) => Err(Status::DELAY),
        }
    }

    /// A client's list, with names replaced by numbers. Special names stay.
    ///
    /// # Errors
    /// BADOWNER for an unknown name; DELAY as for owners.
    pub(super) async fn numbered_acl(&self, acl: Acl) -> Result<Acl, Status> {
        let mut entries = acl.0;
        for entry in &mut entries {
            let special = [ace::OWNER, ace::GROUP, ace::EVERYONE];
            if special.iter().any(|special| special.as_bytes() == entry.who.as_slice()) {
                continue;
            }
            let who = Some(entry.who.clone());
            entry.who = self.id(kind(entry), who).await?.map(Principal::of_number).ok_or(Status::BADOWNER)?;
        }
        Ok(entries.into())
    }
}
