//! Finding files and looking at them: LOOKUP, GETATTR, SETATTR, ACCESS, READLINK, and file systems as a whole.

use super::{
    Error, Nfs4, Opened, attributes,
    compound::{Plan, get, get_attributes, lookup, put},
    reply::done,
};
use rpcrdma_nfs::Call as _;
use rpcrdma_nfs::{
    attr::{Attributes, NewAttributes, Time},
    v4::{Args, Attribute, Bitmap, FileAttributes, Handle, LinkText, Name, Null, Op, StateId, Value, ops},
};
use rpcrdma_xdr::{Encode as _, Encoder};

/// A file that was found or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its handle.
    pub file: Handle,
    /// Its attributes.
    pub attributes: Attributes,
}

/// How much of a file system is used. Numbers that the server does not return are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Bytes that the caller may use.
    pub available_bytes: u64,
    /// Files in all.
    pub total_files: u64,
    /// Files that are free.
    pub free_files: u64,
    /// Files that the caller may make.
    pub available_files: u64,
    /// The longest name in bytes.
    pub longest_name: u32,
    /// The most links of a file.
    pub most_links: u32,
    /// The largest file in bytes.
    pub largest_file: u64,
}

const USAGE: Bitmap = Bitmap::of(&[
    Attribute::FilesAvailable,
    Attribute::FilesFree,
    Attribute::FilesTotal,
    Attribute::MaxFileSize,
    Attribute::MaxLink,
    Attribute::MaxName,
    Attribute::SpaceAvailable,
    Attribute::SpaceFree,
    Attribute::SpaceTotal,
]);

impl Nfs4 {
    /// NULL: whether the server answers.
    ///
    /// # Errors
    /// See [`Error`], here and below.
    pub async fn null(&self) -> Result<(), Error> {
        let (mut encoder, call) = (Encoder::new(), Null);
        call.encode(&mut encoder);
        let results = self.inner.client.call_repeatable(Null::PROCEDURE, encoder.finish(), call.reply_shape()).await;
        let results = results.and_then(|results| Ok(results.decoder.finish()?));
        results.map_err(|source| Error::call(Op::Sequence, source))
    }

    /// PUTROOTFH: the root of the server's tree.
    pub async fn root(&self) -> Result<Found, Error> {
        self.find(Op::PutRootFh, vec![Args::PutRootFh]).await
    }

    /// PUTROOTFH, and LOOKUP of one name after the other. Even if the server's root takes other flavours than this
    /// client's, the client may pass it on the way to a file that takes its flavour.
    pub async fn lookup_from_root(&self, names: &[Name]) -> Result<Found, Error> {
        let ops = [Args::PutRootFh].into_iter().chain(names.iter().map(lookup)).collect();
        self.find(Op::Lookup, ops).await
    }

    /// LOOKUP: the file of a name.
    pub async fn lookup(&self, directory: &Handle, name: &Name) -> Result<Found, Error> {
        self.find(Op::Lookup, vec![put(directory), lookup(name)]).await
    }

    /// LOOKUPP: the directory above.
    pub async fn lookup_parent(&self, directory: &Handle) -> Result<Found, Error> {
        self.find(Op::LookupP, vec![put(directory), Args::LookupP]).await
    }

    async fn find(&self, purpose: Op, mut ops: Vec<Args>) -> Result<Found, Error> {
        ops.extend([Args::GetFh, get_attributes()]);
        let mut reply = self.inner.perform(Plan::looks(purpose), None, &mut |_| Ok(ops.clone())).await?;
        let file = done!(reply, GetFh)?.file;
        Ok(Found { file, attributes: attributes::next(&mut reply)? })
    }

    /// GETATTR: a file's attributes.
    pub async fn getattr(&self, file: &Handle) -> Result<Attributes, Error> {
        let ops = [put(file), get_attributes()];
        let mut reply = self.inner.perform(Plan::looks(Op::GetAttr), None, &mut |_| Ok(ops.to_vec())).await?;
        attributes::next(&mut reply)
    }

    /// SETATTR: sets attributes. To set the size, pass an `opened` that is open for writing.
    pub async fn setattr(
        &self,
        file: &Handle,
        new: &NewAttributes,
        opened: Option<&Opened>,
    ) -> Result<Attributes, Error> {
        self.setattr_if(file, new, opened, None).await
    }

    /// The same, but only if the time of the file's last change is still `guard`: otherwise a VERIFY in the call fails
    /// with [`NOT_SAME`](rpcrdma_nfs::v4::Status::NOT_SAME).
    pub async fn setattr_if(
        &self,
        file: &Handle,
        new: &NewAttributes,
        opened: Option<&Opened>,
        guard: Option<Time>,
    ) -> Result<Attributes, Error> {
        let guard = guard.map(|changed| FileAttributes::of(&[Value::TimeMetadata(changed.into())]));
        let new = self.inner.changed(new);
        let held = opened.map(|opened| &opened.held);
        let mut build = |ground: &super::standing::Ground| {
            let state = match held {
                Some(held) => {
                    self.inner.still_held(Op::SetAttr, held)?;
                    held.io_state(ground)
                }
                None => StateId::ANONYMOUS,
            };
            let set = Args::SetAttr(ops::SetAttr { state, attributes: new.clone() });
            let guard = guard.clone().map(|attributes| Args::Verify(ops::Verify { attributes }));
            Ok([put(file)].into_iter().chain(guard).chain([set, get_attributes()]).collect())
        };
        let mut reply = self.inner.perform(Plan::changes(Op::SetAttr), held, &mut build).await?;
        let set = done!(reply, SetAttr)?.set;
        if !new.set.is_within(&set) {
            tracing::debug!("the server has set fewer attributes than it was asked to");
        }
        match attributes::next(&mut reply) {
            Ok(attributes) => Ok(attributes),
            // The server has set the attributes, although the reply does not contain them.
            Err(_) => self.getattr(file).await,
        }
    }

    /// ACCESS: which of `rights` ([`ops::access`]) the caller has.
    pub async fn access(&self, file: &Handle, rights: u32) -> Result<u32, Error> {
        let ops = [put(file), Args::Access(ops::Access { rights })];
        let mut reply = self.inner.perform(Plan::looks(Op::Access), None, &mut |_| Ok(ops.to_vec())).await?;
        Ok(done!(reply, Access)?.rights & rights)
    }

    /// READLINK: what a symbolic link points to.
    pub async fn readlink(&self, link: &Handle) -> Result<LinkText, Error> {
        let ops = [put(link), Args::ReadLink];
        let mut reply = self.inner.perform(Plan::looks(Op::ReadLink), None, &mut |_| Ok(ops.to_vec())).await?;
        Ok(done!(reply, ReadLink)?.text)
    }

    /// How much of a file's file system is used.
    pub async fn statfs(&self, file: &Handle) -> Result<Usage, Error> {
        let ops = [put(file), get(USAGE)];
        let mut reply = self.inner.perform(Plan::looks(Op::GetAttr), None, &mut |_| Ok(ops.to_vec())).await?;
        let told = done!(reply, GetAttr)?.attributes;
        let mut usage = Usage::default();
        for value in attributes::values(&told, USAGE)? {
            match value {
                Value::FilesAvailable(files) => usage.available_files = files,
                Value::FilesFree(files) => usage.free_files = files,
                Value::FilesTotal(files) => usage.total_files = files,
                Value::MaxFileSize(octets) => usage.largest_file = octets,
                Value::MaxLink(links) => usage.most_links = links,
                Value::MaxName(octets) => usage.longest_name = octets,
                Value::SpaceAvailable(octets) => usage.available_bytes = octets,
                Value::SpaceFree(octets) => usage.free_bytes = octets,
                Value::SpaceTotal(octets) => usage.total_bytes = octets,
                _ => {}
            }
        }
        Ok(usage)
    }
}
