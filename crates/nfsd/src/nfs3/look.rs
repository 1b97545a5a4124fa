//! Procedures that change nothing.

use super::{
    Execution, check_name,
    tell::{answer, failure, faulty, refused, status},
};
use crate::{
    Listing, ListingBudget, ListingEntry, ReadData, Rights, Via,
    claims::{Access, Kind},
    opened::Opened,
    transfer::TRANSFER_UNIT_BYTES,
};
use rpcrdma_env::Buffer;
use rpcrdma_nfs::v3::{
    self, Answer, Attributes, Entry, EntryPlus, Failure, Handle, MAX_HANDLE_BYTES, Name, Path, Status, entry_bytes,
    entry_plus_bytes, read_directory_bytes,
};

/// The best READDIR, in bytes: some 400 entries with attributes.
const PREFERRED_LISTING_BYTES: u32 = 64 << 10;

/// A READ of at most this many bytes gets memory for all of them, however small the file is.
const UNASKED_READ_BYTES: usize = 64 << 10;

type Info = Option<Attributes>;

fn read_ok(read: ReadData) -> v3::ReadOk {
    v3::ReadOk { attributes: read.attributes.map(Into::into), end: read.end, data: read.buffer.freeze() }
}

impl Execution {
    pub(crate) async fn get_attributes(self, args: v3::GetAttributes) -> Answer<Attributes, ()> {
        let attributes = match self.open(&args.file) {
            Ok(opened) => opened.attributes().await.map(Attributes::from).map_err(faulty),
            Err(status) => Err(refused(status)),
        };
        answer(attributes)
    }

    pub(crate) async fn lookup(self, args: v3::Lookup) -> Answer<v3::LookupOk, Info> {
        answer(self.try_lookup(args).await)
    }

    async fn try_lookup(&self, args: v3::Lookup) -> Result<v3::LookupOk, Failure<Info>> {
        let opened = self.open(&args.directory).map_err(refused)?;
        check_name(&opened, &args.name).map_err(refused)?;
        let found =
            opened.file_system.lookup(opened.caller.clone(), opened.file, args.name.0).await.map_err(failure)?;
        let file = self.server.handle(&opened, found.file);
        let (attributes, directory) = (found.attributes.map(Into::into), found.directory.map(Into::into));
        Ok(v3::LookupOk { file, attributes, directory })
    }

    pub(super) async fn access(self, args: v3::Access) -> Answer<v3::AccessOk, Info> {
        answer(self.try_access(args).await)
    }

    async fn try_access(&self, args: v3::Access) -> Result<v3::AccessOk, Failure<Info>> {
        let opened = self.open(&args.file).map_err(refused)?;
        let asked = Rights::from_bits(args.rights);
        let asked = if opened.read_only { asked & !Rights::CHANGING } else { asked };
        let told = opened.file_system.access(opened.caller.clone(), opened.file, asked).await;
        let (rights, attributes) = told.map_err(failure)?;
        Ok(v3::AccessOk { attributes: attributes.map(Into::into), rights: (rights & asked).bits() })
    }

    pub(crate) async fn read_link(self, args: v3::ReadLink) -> Answer<v3::ReadLinkOk, Info> {
        answer(self.try_read_link(args).await)
    }

    async fn try_read_link(&self, args: v3::ReadLink) -> Result<v3::ReadLinkOk, Failure<Info>> {
        let opened = self.open(&args.link).map_err(refused)?;
        let told = opened.file_system.read_link(opened.caller.clone(), opened.file).await;
        let (path, attributes) = told.map_err(failure)?;
        Ok(v3::ReadLinkOk { attributes: attributes.map(Into::into), path: Path(path) })
    }

    /// [`get_attributes`](Self::get_attributes), if it waits for nothing.
    pub(super) fn attributes_now(&self, args: &v3::GetAttributes) -> Option<Answer<Attributes, ()>> {
        Some(answer(match self.open(&args.file) {
            Ok(opened) => opened.attributes_at_once()?.map(Attributes::from).map_err(faulty),
            Err(status) => Err(refused(status)),
        }))
    }

    /// [`read`](Self::read) of not too many bytes, if it waits for nothing.
    // NFS3-1813-3.3.6-a
    pub(super) fn read_now(&self, args: &v3::Read) -> Option<Answer<v3::ReadOk, Info>> {
        let count = usize::try_from(args.count).ok().filter(|count| (1..=UNASKED_READ_BYTES).contains(count))?;
        let opened = self.open(&args.file).ok()?;
        let _using = self.server.may_read_at_once(&opened)?;
        let count = count.min(self.transfer_limits().0);
        let buffer = self.context.connection.allocator.try_allocate(count)?;
        let Opened { file_system, caller, file, arrival, .. } = opened;
        let via = Via::caller(caller, file).arrived(arrival);
        let read = file_system.read_at_once(&via, args.offset, count, buffer).ok()?;
        Some(Answer::Ok(read_ok(read)))
    }

    // NFS3-1813-3.3.6-a
    pub(crate) async fn read(self, args: v3::Read) -> Answer<v3::ReadOk, Info> {
        answer(self.try_read(args).await)
    }

    async fn try_read(&self, args: v3::Read) -> Result<v3::ReadOk, Failure<Info>> {
        let opened = self.open(&args.file).map_err(refused)?;
        self.may(&opened, Access::READ).await.map_err(refused)?;
        let _using = self.using(&opened, Kind::Read).await.map_err(refused)?;
        let (max, _) = self.transfer_limits();
        let mut count = usize::try_from(args.count).unwrap_or(usize::MAX).min(max);
        // To ask for the size costs as much as a small read.
        if count > UNASKED_READ_BYTES
            && let Some(size) = opened.size_at_once()
        {
            let left = size.saturating_sub(args.offset);
            count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        let buffer = self.buffer(count).await;
        let via = Via::caller(opened.caller.clone(), opened.file);
        let read = opened.read(via, args.offset, count, buffer).await.map_err(failure)?;
        Ok(read_ok(read))
    }

    /// Memory from which the transport can send. If there is none, waits, and holds the call's credit meanwhile.
    pub(super) async fn buffer(&self, len: usize) -> Buffer {
        let allocator = &self.context.connection.allocator;
        if len == 0 {
            return Buffer::from_vec(Vec::new());
        }
        match allocator.try_allocate(len) {
            Some(buffer) => buffer,
            None => allocator.allocate(len).await,
        }
    }

    pub(super) async fn read_directory(self, args: v3::ReadDirectory) -> Answer<v3::ReadDirectoryOk, Info> {
        answer(self.try_read_directory(args).await)
    }

    async fn try_read_directory(&self, args: v3::ReadDirectory) -> Result<v3::ReadDirectoryOk, Failure<Info>> {
        let opened = self.open(&args.directory).map_err(refused)?;
        let octets = self.listing_bytes(args.count).saturating_sub(read_directory_bytes());
        let budget = ListingBudget::new(octets, entry_bytes(0));
        let listing = self.list(&opened, args.cookie, args.verifier, budget).await?;
        let entry =
            |entry: ListingEntry| Entry { file_id: entry.file_id, name: Name(entry.name), cookie: entry.cookie };
        Ok(v3::ReadDirectoryOk {
            attributes: listing.attributes.map(Into::into),
            verifier: v3::Verifier(listing.verifier),
            entries: listing.entries.into_iter().map(entry).collect(),
            end: listing.end,
        })
    }

    pub(super) async fn read_directory_plus(
        self,
        args: v3::ReadDirectoryPlus,
    ) -> Answer<v3::ReadDirectoryPlusOk, Info> {
        answer(self.try_read_directory_plus(args).await)
    }

    async fn try_read_directory_plus(
        &self,
        args: v3::ReadDirectoryPlus,
    ) -> Result<v3::ReadDirectoryPlusOk, Failure<Info>> {
        let opened = self.open(&args.directory).map_err(refused)?;
        let names = usize::try_from(args.directory_count).unwrap_or(usize::MAX);
        let octets = self.listing_bytes(args.max_count).saturating_sub(read_directory_bytes());
        let budget = ListingBudget::new(octets, entry_plus_bytes(0, MAX_HANDLE_BYTES))
            .with_names(names, entry_bytes(0))
            .with_attributes();
        let listing = self.list(&opened, args.cookie, args.verifier, budget).await?;
        let entry = |entry: ListingEntry| {
            let (file, attributes) = entry.file.unzip();
            EntryPlus {
                file_id: attributes.as_ref().map_or(entry.file_id, |attributes| attributes.file_id),
                name: Name(entry.name),
                cookie: entry.cookie,
                attributes: attributes.map(Into::into),
                file: file.map(|file| -> Handle { self.server.handle(&opened, file) }),
            }
        };
        Ok(v3::ReadDirectoryPlusOk {
            attributes: listing.attributes.map(Into::into),
            verifier: v3::Verifier(listing.verifier),
            entries: listing.entries.into_iter().map(entry).collect(),
            end: listing.end,
        })
    }

    pub(super) fn listing_bytes(&self, asked: u32) -> usize {
        usize::try_from(asked).unwrap_or(usize::MAX).min(self.listing_limit())
    }

    async fn list(
        &self,
        opened: &Opened,
        cookie: u64,
        verifier: v3::Verifier,
        budget: ListingBudget,
    ) -> Result<Listing, Failure<Info>> {
        let listing = opened.file_system.list(opened.caller.clone(), opened.file, cookie, verifier.0, budget).await;
        let listing = listing.map_err(failure)?;
        if listing.entries.is_empty() && !listing.end {
            return Err(Failure { status: Status::TOOSMALL, info: listing.attributes.map(Into::into) });
        }
        Ok(listing)
    }

    pub(super) async fn file_system_status(self, args: v3::FileSystemStatus) -> Answer<v3::FileSystemStatusOk, Info> {
        let result = async {
            let opened = self.open(&args.root)?;
            let attributes = opened.attributes().await.map_err(status)?;
            let usage = opened.file_system.usage(opened.caller.clone()).await.map_err(status)?;
            Ok(v3::FileSystemStatusOk {
                attributes: Some(attributes.into()),
                total_bytes: usage.total_bytes,
                free_bytes: usage.free_bytes,
                available_bytes: usage.available_bytes,
                total_files: usage.total_files,
                free_files: usage.free_files,
                available_files: usage.free_files,
                invariant_seconds: 0,
            })
        };
        answer(result.await.map_err(refused))
    }

    pub(super) async fn file_system_info(self, args: v3::FileSystemInfo) -> Answer<v3::FileSystemInfoOk, Info> {
        let (read, write) = self.transfer_limits();
        let [read, write] = [read, write].map(|octets| u32::try_from(octets).unwrap_or(u32::MAX));
        let result = async {
            let opened = self.open(&args.root)?;
            let features = opened.file_system.features();
            Ok(v3::FileSystemInfoOk {
                attributes: Some(opened.attributes().await.map_err(status)?.into()),
                read_max: read,
                read_preferred: read,
                read_multiple: TRANSFER_UNIT_BYTES as u32,
                write_max: write,
                write_preferred: write,
                write_multiple: TRANSFER_UNIT_BYTES as u32,
                directory_preferred: PREFERRED_LISTING_BYTES.min(read),
                max_file_bytes: features.max_file_bytes,
                time_precision: features.time_precision.into(),
                properties: v3::properties::LINK
                    | v3::properties::SYMLINK
                    | v3::properties::HOMOGENEOUS
                    | v3::properties::CAN_SET_TIME,
            })
        };
        answer(result.await.map_err(refused))
    }

    pub(super) async fn path_configuration(self, args: v3::PathConfiguration) -> Answer<v3::PathConfigurationOk, Info> {
        let result = async {
            let opened = self.open(&args.file)?;
            let features = opened.file_system.features();
            Ok(v3::PathConfigurationOk {
                attributes: Some(opened.attributes().await.map_err(status)?.into()),
                max_links: features.max_links,
                max_name_bytes: features.max_name_bytes,
                no_truncation: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            })
        };
        answer(result.await.map_err(refused))
    }
}
