//! Putting a COMPOUND together.
//!
//! A call has at most one argument and one result that may be placed directly: one Read chunk in addition to that of
//! Position Zero, and one Write chunk (ULB-5.1.2.2-b).

use rpcrdma_nfs::v4::{Args, Attribute, Bitmap, Handle, Name, Op, ops};

/// What a call is for, and what may be done with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// What errors name that concern the whole call.
    pub(super) purpose: Op,
    /// Whether executing it twice does harm.
    pub(super) changes: bool,
    /// Whether the server is to remember its reply, for a repetition.
    pub(super) is_kept: bool,
    /// Whether the size of the reply is not known before: the call then offers what the session allows.
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

    /// The same if the size of the reply is not known before.
    pub(super) fn guessed(mut self) -> Self {
        self.is_guessed = true;
        self
    }
}

pub(super) fn put(file: &Handle) -> Args {
    Args::PutFh(ops::PutFh { file: file.clone() })
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

/// Whether a call of these operations needs one chunk of a kind at most.
pub(super) fn has_one_of_a_kind(ops: &[Args]) -> bool {
    let (arguments, results) = eligible(ops);
    arguments <= 1 && results <= 1
}

/// How many arguments and results of these operations may be placed directly.
fn eligible(ops: &[Args]) -> (usize, usize) {
    let arguments = ops.iter().filter(|args| match args {
        Args::Create(create) => matches!(create.kind, ops::CreateKind::Symlink(_)),
        args => args.op().eligible_argument().is_some(),
    });
    (arguments.count(), ops.iter().filter(|args| args.op().eligible_result().is_some()).count())
}
