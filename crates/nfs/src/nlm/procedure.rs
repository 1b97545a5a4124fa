//! The procedures by number, and which exists where.

use super::{VERSION_1, VERSION_3, VERSION_4};

macro_rules! procedures {
    ($($(#[$meta:meta])* $variant:ident = $value:literal, $name:literal, $form:ident;)*) => {
        xdr_enum! {
            /// A procedure of NLM.
            #[derive(PartialOrd, Ord)]
            pub enum Procedure: "procedure of NLM" {
                $($(#[$meta])* $variant = $value,)*
            }
        }

        impl Procedure {
            /// All of them, by number.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The procedure of a number, if any version has one.
            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($value => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The name that the protocol gives it, without the version's prefix.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// How it is answered.
            pub fn form(self) -> Form {
                match self {
                    $(Self::$variant => Form::$form,)*
                }
            }
        }
    };
}

/// How a procedure is answered.
// NLM-6.2-b
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By its reply.
    Answered,
    /// By a call in the other direction; its reply is empty.
    Message,
    /// It is such a call; its reply is empty, and nothing else answers it.
    Response,
}

procedures! {
    /// Does nothing.
    Null = 0, "NULL", Answered;
    /// Asks which lock conflicts with a requested lock.
    Test = 1, "TEST", Answered;
    /// Asks for a lock.
    Lock = 2, "LOCK", Answered;
    /// Ends waiting for a lock.
    Cancel = 3, "CANCEL", Answered;
    /// Gives a lock back.
    Unlock = 4, "UNLOCK", Answered;
    /// A server tells a client that it has the lock for which it waits.
    Granted = 5, "GRANTED", Answered;
    /// TEST, answered by TEST_RES.
    TestMessage = 6, "TEST_MSG", Message;
    /// LOCK, answered by LOCK_RES.
    LockMessage = 7, "LOCK_MSG", Message;
    /// CANCEL, answered by CANCEL_RES.
    CancelMessage = 8, "CANCEL_MSG", Message;
    /// UNLOCK, answered by UNLOCK_RES.
    UnlockMessage = 9, "UNLOCK_MSG", Message;
    /// GRANTED, answered by GRANTED_RES.
    GrantedMessage = 10, "GRANTED_MSG", Message;
    /// Answers TEST_MSG.
    TestResponse = 11, "TEST_RES", Response;
    /// Answers LOCK_MSG.
    LockResponse = 12, "LOCK_RES", Response;
    /// Answers CANCEL_MSG.
    CancelResponse = 13, "CANCEL_RES", Response;
    /// Answers UNLOCK_MSG.
    UnlockResponse = 14, "UNLOCK_RES", Response;
    /// Answers GRANTED_MSG.
    GrantedResponse = 15, "GRANTED_RES", Response;
    /// Reserves a file.
    Share = 20, "SHARE", Answered;
    /// Gives a reservation back.
    Unshare = 21, "UNSHARE", Answered;
    /// LOCK by a client that no server monitors: it gets no notice when the server starts again.
    UnmonitoredLock = 22, "NM_LOCK", Answered;
    /// Gives back all that a host has.
    FreeAll = 23, "FREE_ALL", Answered;
}

impl Procedure {
    /// Whether a version has it: share reservations came with version 3. Every version has NULL.
    // NLM-6.2-a
    pub fn is_in(self, version: u32) -> bool {
        match version {
            VERSION_1 => self < Self::Share,
            VERSION_3 | VERSION_4 => true,
            _ => false,
        }
    }

    /// Whether executing a call twice does the same as once. All calls but questions change what another host may have
    /// changed since: a LOCK that comes again after its UNLOCK would lock a range that no host ever unlocks. The `_RES`
    /// are matched by their cookies, which are valid once.
    pub fn is_idempotent(self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::Test
                // NLM-DUP-a
                | Self::TestResponse
                | Self::LockResponse
                | Self::CancelResponse
                | Self::UnlockResponse
                | Self::GrantedResponse
        )
    }

    /// The call that answers one of the form [`Form::Message`].
    // NLM-6.2-b
    pub fn response(self) -> Option<Self> {
        match self {
            Self::TestMessage => Some(Self::TestResponse),
            Self::LockMessage => Some(Self::LockResponse),
            Self::CancelMessage => Some(Self::CancelResponse),
            Self::UnlockMessage => Some(Self::UnlockResponse),
            Self::GrantedMessage => Some(Self::GrantedResponse),
            _ => None,
        }
    }
}
