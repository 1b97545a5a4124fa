//! Putting a COMPOUND together.
//!
//! A call has at most one argument and one result for direct placement: one Read chunk in addition to the one at
//! Position Zero, and one Write chunk (ULB-5.1.2.2-b).

use rpcrdma_nfs::v4::{Args, Attribute, Bitmap, Handle, Name, Op, ops};

/// The purpose of a call, and how it may be treated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The operation that an error of the whole call names.
    pub(super) purpose: Op,
    /// Whether to execute it twice does harm.
    pub(super) changes: bool,
    /// Whether the server should keep its reply for a repetition.
    pub(super) is_kept: bool,
    /// Whether the size of the reply is unknown beforehand: then the call has room for the session's largest reply.
    pub(super) is_guessed: bool,
}

impl Plan {
    /// A call that only looks.
    pub(super) fn looks(purpose: Op) -> Self {
        Self { purpose, changes: false, is_kept: false, is_guessed: false }
    }

    /// A call that must not be executed twice.
    pub(super) fn changes(purpose: Op) -> Self {
        Self { purpose, changes: true, is_kept: true, is_guessed: false }
    }

    /// The same, with a reply whose size is unknown beforehand.
    pub(super) fn guessed(mut self) -> Self {
        self.is_guessed = true;
        self
    }
}

pub(super) fn put(file: &Handle) -> Args {
    Args::PutFh(ops::PutFh { file: file.clone() })
}

/// Puts a file first, and then something that is done with it. The list has room for SEQUENCE, too.
pub(super) fn with_file(file: &Handle, args: Args) -> Vec<Args> {
    let mut ops = Vec::with_capacity(3);
    ops.extend([put(file), args]);
    ops
}

pub(super) fn lookup(name: &Name) -> Args {
    Args::Lookup(ops::Lookup { name: name.clone() })
}

pub(super) fn get(asked: Bitmap) -> Args {
    Args::GetAttr(ops::GetAttr { asked })
}

/// Asks for all attributes of [`rpcrdma_nfs::attr::Attributes`].
pub(super) fn get_attributes() -> Args {
    get(ATTRIBUTES)
}

/// The attributes that make [`rpcrdma_nfs::attr::Attributes`].
pub(super) const ATTRIBUTES: Bitmap = Bitmap::of(&[
    Attribute::Type,
    Attribute::Change,
    Attribute::Size,
    Attribute::FileSystem,
    Attribute::FileId,
    Attribute::Mode,
    Attribute::Links,
    Attribute::Owner,
    Attribute::Group,
    Attribute::RawDevice,
    Attribute::SpaceUsed,
    Attribute::TimeAccess,
    Attribute::TimeMetadata,
    Attribute::TimeModify,
    Attribute::TimeCreate,
]);

/// Whether a call of these operations needs at most one chunk of each kind.
pub(super) fn has_one_of_a_kind(ops: &[Args]) -> bool {
    let (arguments, results) = eligible(ops);
    arguments <= 1 && results <= 1
}

/// How many arguments and results of these operations are eligible for direct placement.
fn eligible(ops: &[Args]) -> (usize, usize) {
    let arguments = ops.iter().filter(|args| match args {
        Args::Create(create) => matches!(create.kind, ops::CreateKind::Symlink(_)),
        args => args.op().eligible_argument().is_some(),
    });
    (arguments.count(), ops.iter().filter(|args| args.op().eligible_result().is_some()).count())
}
