//! Clients and their owners, which hold claims, and callers that hold none.

use std::sync::Arc;

/// A client, by the number that its protocol gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Client {
    /// A client of NFS version 4, by its client id.
    V4(u64),
    /// A host that locks through NLM, by the number that the lock manager gives its name.
    Nlm(u64),
}

/// An owner of claims: a name that means something to its client alone. Cloning shares the name.
///
/// Owners of opens and owners of byte ranges are different even where their names are equal (RFC 8881 section 9.1.1):
/// the tables of shares and of ranges never compare one with the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    client: Client,
    owner: Arc<[u8]>,
}

impl Holder {
    /// The owner with this name. The name is copied: a part of a received message would keep the whole message in
    /// memory. A protocol bounds the bytes of names by the number of its owners.
    // NFS4-8881-9.1.1-a
    pub fn new(client: Client, owner: &[u8]) -> Self {
        Self { client, owner: owner.into() }
    }

    /// The client of the owner.
    pub fn client(&self) -> Client {
        self.client
    }

    /// The name.
    pub fn owner(&self) -> &[u8] {
        &self.owner
    }
}

/// The caller that wants to read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker<'a> {
    /// A caller that has not opened the file: version 3, and the special stateids of version 4.
    Anonymous,
    /// A caller that may have opened the file: its own opens do not exclude it.
    Holder(&'a Holder),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_the_name_and_its_client() {
        let owner = Holder::new(Client::V4(1), b"a");
        assert_eq!(owner, Holder::new(Client::V4(1), b"a"));
        for other in [(Client::V4(2), b"a"), (Client::Nlm(1), b"a"), (Client::V4(1), b"b")] {
            assert_ne!(owner, Holder::new(other.0, other.1));
        }
        assert_eq!((owner.client(), owner.owner()), (Client::V4(1), b"a".as_slice()));
    }
}
