//! READDIR: entries with cookies of 32 bits.

use super::{Execution, cookies::Place, three};
use crate::{Fault, Listing, ListingBudget, ListingEntry, Told, nfs3, opened::Opened};
use rpcrdma_nfs::{
    v2::{self, Entry, MAX_NAME_BYTES, MAX_TRANSFER_BYTES, Name, entry_bytes, list_bytes},
    v3::Status,
};

/// How many bytes of entries one step of a search looks at.
const SEARCHED_BYTES: usize = 64 << 10;

fn status(fault: Fault) -> Status {
    nfs3::status(fault)
}

impl Execution {
    // NFS2-1094-2.2.17-a
    pub(super) async fn read_directory(self, args: v2::ReadDirectory) -> Result<v2::ReadDirectoryOk, Status> {
        let opened = self.three().open(&three(&args.directory))?;
        let cookie = match args.cookie {
            0 => 0,
            cookie => self.find(&opened, cookie).await?,
        };
        let asked = usize::try_from(args.count).unwrap_or(usize::MAX).min(MAX_TRANSFER_BYTES);
        let octets = asked.saturating_sub(list_bytes());
        let mut listing = self.list(&opened, cookie, octets).await?;
        if listing.entries.is_empty() && !listing.end {
            // Version 2 cannot say that there is too little room: the reply has one entry, however long its name is.
            listing = self.list(&opened, cookie, entry_bytes(MAX_NAME_BYTES)).await?;
            if listing.entries.len() > 1 {
                listing.entries.truncate(1);
                listing.end = false;
            }
        }
        let cookies = &self.version_2.cookies;
        if let Some(last) = listing.entries.last().filter(|_| !listing.end) {
            cookies.remember(opened.file_system.id(), opened.file, last.cookie);
        }
        let entry = |entry: ListingEntry| Entry::new(entry.file_id, Name(entry.name), cookies.of(entry.cookie));
        Ok(v2::ReadDirectoryOk { entries: listing.entries.into_iter().map(entry).collect(), end: listing.end })
    }

    /// The file system's cookie, from a cookie of the client.
    // NFS2-COOKIE-b
    async fn find(&self, opened: &Opened, cookie: u32) -> Result<u64, Status> {
        if let Place::After(place) = self.version_2.cookies.place(opened.file_system.id(), opened.file, cookie) {
            return Ok(place);
        }
        let mut after = 0;
        loop {
            let listing = self.list(opened, after, SEARCHED_BYTES).await?;
            let found = listing.entries.iter().find(|entry| self.version_2.cookies.of(entry.cookie) == cookie);
            if let Some(entry) = found {
                return Ok(entry.cookie);
            }
            match listing.entries.last() {
                Some(last) if !listing.end && last.cookie != after => after = last.cookie,
                _ => return Err(Status::BAD_COOKIE),
            }
        }
    }

    /// Entries after a cookie. Version 2 has no verifier: cookies stay valid for as long as the file system's do.
    async fn list(&self, opened: &Opened, cookie: u64, octets: usize) -> Result<Listing, Status> {
        let (cookies, file_system) = (&self.version_2.cookies, opened.file_system.id());
        let verifier = match (cookie, cookies.verifier(file_system)) {
            (0, _) => [0; 8],
            (_, Some(verifier)) => verifier,
            (_, None) => self.verifier(opened).await?,
        };
        let listing = match ask(opened, cookie, verifier, octets).await {
            Err(failure) if failure.fault == Fault::BadCookie && cookie != 0 => {
                let verifier = self.verifier(opened).await?;
                ask(opened, cookie, verifier, octets).await
            }
            listing => listing,
        };
        let listing = listing.map_err(|failure| status(failure.fault))?;
        cookies.told(file_system, listing.verifier);
        Ok(listing)
    }

    /// The present verifier of the cookies.
    async fn verifier(&self, opened: &Opened) -> Result<[u8; 8], Status> {
        let listing = ask(opened, 0, [0; 8], entry_bytes(MAX_NAME_BYTES)).await;
        listing.map(|listing| listing.verifier).map_err(|failure| status(failure.fault))
    }
}

async fn ask(opened: &Opened, cookie: u64, verifier: [u8; 8], octets: usize) -> Told<Listing> {
    let budget = ListingBudget::new(octets, entry_bytes(0));
    opened.file_system.list(opened.caller.clone(), opened.file, cookie, verifier, budget).await
}
