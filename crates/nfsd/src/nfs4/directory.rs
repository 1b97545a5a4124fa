//! READDIR (RFC 8881 section 18.23).

use super::{
    compound::Compound,
    settable::supported,
    tell::{failure, status},
    told::Asked,
};
use crate::{Fault, Listing, ListingBudget, ListingEntry, opened::Opened, transfer::MAX_LISTING_BYTES};
use bytes::Bytes;
use rpcrdma_nfs::{
    attr::Attributes,
    v4::{
        Attribute, Bitmap, FileAttributes, Name, Status, Value, Verifier,
        ops::{self, Answer, Entry, ReadDirOk},
    },
};

/// Bytes of an outcome before its results: the operation's number and the status.
const OUTCOME_BYTES: usize = 8;
/// Bytes of an entry's cookie and of the length of its name: `dircount` counts them with the name.
const NAME_BYTES: usize = 8 + 4;

/// Bytes of the name `.` or `..`.
const DOT_BYTES: usize = 4;
/// The shortest owner or group: its length and a word of text.
const SHORTEST_PRINCIPAL_BYTES: usize = 4 + 4;
/// The shortest handle: only its length.
const SHORTEST_HANDLE_BYTES: usize = 4;
/// The shortest set in an attribute: only its length.
const SHORTEST_BITMAP_BYTES: usize = 4;

/// Attributes that need no question to the file system.
const FREE: Bitmap = Bitmap::of(&[Attribute::ReadAttributesError]);

/// Reserved cookies (RFC 8881 section 18.23.3), and the cookies that the server sends for them.
const RESERVED: [u64; 2] = [1, 2];
const IN_THEIR_PLACE: [u64; 2] = [u64::MAX - 1, u64::MAX];

/// The cookie for clients, from a cookie of the file system: never 0, 1 or 2.
fn told_cookie(cookie: u64) -> Result<u64, Status> {
    match cookie {
        1 | 2 => Ok(IN_THEIR_PLACE[cookie as usize - 1]),
        cookie if cookie == 0 || IN_THEIR_PLACE.contains(&cookie) => Err(Status::SERVERFAULT),
        cookie => Ok(cookie),
    }
}

/// The cookie of the file system, from a cookie of a client.
fn taken_cookie(cookie: u64) -> Result<u64, Status> {
    if RESERVED.contains(&cookie) {
        return Err(Status::BAD_COOKIE);
    }
    Ok(IN_THEIR_PLACE.iter().position(|told| *told == cookie).map_or(cookie, |place| RESERVED[place]))
}

/// The fewest bytes that an entry takes beside its name. Its real size is counted when it exists.
fn least_entry_bytes(asked: &Bitmap) -> usize {
    let empty = Entry {
        cookie: 0,
        name: Name::default(),
        attributes: FileAttributes { set: *asked, ..FileAttributes::default() },
    };
    let values = asked.iter().filter_map(Attribute::from_number).map(|attribute| match attribute {
        Attribute::Owner | Attribute::Group => SHORTEST_PRINCIPAL_BYTES,
        Attribute::Handle => SHORTEST_HANDLE_BYTES,
        Attribute::SupportedAttributes | Attribute::SupportedExclusiveCreate => SHORTEST_BITMAP_BYTES,
        // Some files have no such attribute.
        Attribute::TimeCreate => 0,
        attribute => attribute.largest_bytes().unwrap_or(0),
    });
    // Without it, the set may be shorter by its last word.
    (empty.octets() + values.sum::<usize>()).saturating_sub(4)
}

impl Compound {
    pub(super) async fn read_directory(&mut self, args: ops::ReadDir, room: usize) -> Answer<ReadDirOk> {
        let directory = self.file()?;
        let cookie = taken_cookie(args.cookie)?;
        let asked = self.asked(&directory, args.asked).await?;
        let max = usize::try_from(args.max_count).unwrap_or(usize::MAX);
        let octets = max.min(room.saturating_sub(OUTCOME_BYTES)).min(MAX_LISTING_BYTES);
        let left = octets.checked_sub(ReadDirOk::EMPTY_BYTES).ok_or(Status::TOOSMALL)?;
        // The reply is put together on the heap, and counts as that much of the connection's memory until it was sent.
        let counted = self.buffer(octets).await?;
        let listed = self.list(&directory, &args, (cookie, left), &asked).await;
        // NFS4-MEMORY-a
        self.counted = Some(counted);
        listed
    }

    async fn list(
        &self,
        directory: &Opened,
        args: &ops::ReadDir,
        (mut cookie, mut left): (u64, usize),
        asked: &Asked,
    ) -> Answer<ReadDirOk> {
        // `.` and `..` take no room in the reply; the listing has to pass them even if there is no room for an entry.
        let least = least_entry_bytes(&asked.set);
        let mut budget = ListingBudget::new(left.max(2 * (least + DOT_BYTES)), least);
        if args.directory_count != 0 {
            // `dircount` is a hint: an entry with a long name is still returned.
            let longest = directory.file_system.features().max_name_bytes;
            let names = args.directory_count.max(longest.saturating_add(NAME_BYTES as u32 + 3));
            budget = budget.with_names(usize::try_from(names).unwrap_or(usize::MAX), NAME_BYTES);
        }
        let wants_attributes = !asked.set.without(&FREE).is_empty();
        if wants_attributes {
            budget = budget.with_attributes();
        }
        let mut verifier = args.verifier;
        let mut entries = Vec::new();
        let borders = self.server.borders_in(directory).await;
        loop {
            let listing = self.part(directory, cookie, verifier, budget).await?;
            verifier = Verifier(listing.verifier);
            let is_dot = |entry: &ListingEntry| matches!(&entry.name[..], b"." | b"..");
            let mut last = None;
            for entry in listing.entries {
                last = Some(entry.cookie);
                // NFS4-8881-18.23-a
                if is_dot(&entry) {
                    continue;
                }
                let Some(entry) = self.entry((directory, &borders), entry, asked, wants_attributes).await? else {
                    continue;
                };
                // NFS4-8881-18.23-b
                match left.checked_sub(entry.octets()) {
                    Some(rest) => left = rest,
                    None if entries.is_empty() => return Err(Status::TOOSMALL),
                    None => return Ok(ReadDirOk { verifier, entries, end: false }),
                }
                entries.push(entry);
            }
            if listing.end || !entries.is_empty() {
                return Ok(ReadDirOk { verifier, entries, end: listing.end });
            }
            // So far only entries that a reply never has.
            cookie = last.ok_or(Status::TOOSMALL)?;
        }
    }

    /// A part of the directory from the file system.
    async fn part(
        &self,
        directory: &Opened,
        cookie: u64,
        verifier: Verifier,
        budget: ListingBudget,
    ) -> Result<Listing, Status> {
        let list = |cookie, verifier: Verifier, budget| {
            directory.file_system.list(directory.caller.clone(), directory.file, cookie, verifier.0, budget)
        };
        match list(cookie, verifier, budget).await {
            Err(failed) if failed.fault == Fault::BadCookie && cookie != 0 => {
                // A cookie with another verifier is no longer valid (RFC 8881 section 18.23.3).
                let now = list(0, Verifier::default(), ListingBudget::new(0, 0)).await.map_err(failure)?;
                // NFS4-8881-18.23-d
                Err(if now.verifier == verifier.0 { Status::BAD_COOKIE } else { Status::NOT_SAME })
            }
            listed => listed.map_err(failure),
        }
    }

    /// An entry for the client; `None` if the reply leaves it out.
    async fn entry(
        &self,
        (directory, borders): (&Opened, &[(Bytes, usize)]),
        listed: ListingEntry,
        asked: &Asked,
        wants_attributes: bool,
    ) -> Result<Option<Entry>, Status> {
        let cookie = told_cookie(listed.cookie)?;
        let name = Name(listed.name.clone());
        let border = borders.iter().find(|(name, _)| *name == listed.name);
        let crossed = match border {
            Some((_, inner)) => Some(self.server.cross(&self.context, *inner)),
            None => self.server.enter(&self.context, directory, &listed.name),
        };
        let about = if let Some(crossed) = crossed {
            match crossed {
                // It is an export that this client may not use.
                Err(_) => return Ok(None),
                // NFS4-8881-2.6.3-d: READDIR itself cannot fail with that.
                Ok(file) if !file.is_taken && wants_attributes => {
                    if !asked.set.contains(Attribute::ReadAttributesError) {
                        return Err(Status::ACCESS);
                    }
                    let attributes = FileAttributes::of(&[Value::ReadAttributesError(Status::WRONGSEC)]);
                    return Ok(Some(Entry { cookie, name, attributes }));
                }
                Ok(file) => file.attributes().await.map(|attributes| (file, attributes)),
            }
        } else {
            match listed.file {
                Some((file, attributes)) => Ok((Opened { file, ..directory.clone() }, attributes)),
                None if !wants_attributes => {
                    Ok((directory.clone(), Attributes::new(rpcrdma_nfs::attr::FileType::Regular, 0, 0)))
                }
                None => match self.look_at(directory, &listed).await {
                    // The file was removed meanwhile.
                    Err(Fault::NotFound) => return Ok(None),
                    found => found,
                },
            }
        };
        let attributes = match about {
            Ok((file, attributes)) => self.told(asked, &file, &attributes).await,
            Err(fault) => Err(status(fault)),
        };
        let attributes = match attributes {
            Ok(attributes) => attributes,
            // The file was removed meanwhile.
            Err(Status::STALE) if asked.set.contains(Attribute::Acl) => return Ok(None),
            // NFS4-8881-18.23-c
            Err(status) if asked.set.contains(Attribute::ReadAttributesError) => {
                FileAttributes::of(&[Value::ReadAttributesError(status)])
            }
            Err(status) => return Err(status),
        };
        debug_assert!(attributes.set.is_within(&supported(self.minor)));
        Ok(Some(Entry { cookie, name, attributes }))
    }

    /// Looks at a file that was listed without its attributes.
    async fn look_at(&self, directory: &Opened, listed: &ListingEntry) -> Result<(Opened, Attributes), Fault> {
        let name = listed.name.clone();
        let found = directory.file_system.lookup(directory.caller.clone(), directory.file, name).await;
        let found = found.map_err(|failed| failed.fault)?;
        let file = Opened { file: found.file, ..directory.clone() };
        let attributes = match found.attributes {
            Some(attributes) => attributes,
            None => file.attributes().await?,
        };
        Ok((file, attributes))
    }
}

#[cfg(test)]
pub(super) mod tests;
