//! The procedures of version 3.

use super::{Lists, PROGRAM, VERSION_3, mask};
use crate::{
    Call,
    v3::{Answer, Attributes, Handle, sizes},
};
use rpcrdma_oncrpc::ReplyShape;

/// Procedures by number, in both versions.
pub mod procedure {
    /// Does nothing.
    pub const NULL: u32 = 0;
    /// Asks for the lists of a file.
    pub const GETACL: u32 = 1;
    /// Sets them.
    pub const SETACL: u32 = 2;
    /// Asks for attributes: version 2 alone.
    pub const GETATTR: u32 = 3;
    /// Asks what the caller may do: version 2 alone.
    pub const ACCESS: u32 = 4;

    /// The program's names of the procedures of version 3, by number. The last is one of Solaris alone, for its
    /// directories of extended attributes.
    pub const NAMES: [&str; 4] = ["NULL", "GETACL", "SETACL", "GETXATTRDIR"];
    /// Those of version 2.
    pub const NAMES_2: [&str; 6] = ["NULL", "GETACL", "SETACL", "GETATTR", "ACCESS", "GETXATTRDIR"];

    /// Whether executing a procedure twice does no harm: a second SETACL may undo what another has set since.
    pub const fn is_repeatable(procedure: u32) -> bool {
        matches!(procedure, NULL | GETACL | GETATTR | ACCESS)
    }
}

xdr_struct! {
    /// GETACL: asks for the lists of a file.
    pub struct GetAcl {
        /// The file whose lists are asked for.
        pub file: Handle,
        /// The parts that are asked for: bits of [`mask`].
        pub mask: u32,
    }

    /// What GETACL returns.
    pub struct GetAclOk {
        /// The file's attributes, if known.
        pub attributes: Option<Attributes>,
        /// The lists.
        pub lists: Lists,
    }

    /// SETACL: sets the lists of a file.
    pub struct SetAcl {
        /// The file that gets the lists.
        pub file: Handle,
        /// The lists to set: those whose entries are present.
        pub lists: Lists,
    }
}

impl Call for GetAcl {
    const PROGRAM: u32 = PROGRAM;
    const VERSION: u32 = VERSION_3;
    const PROCEDURE: u32 = procedure::GETACL;
    type Reply = Answer<GetAclOk, Option<Attributes>>;

    fn is_repeatable(&self) -> bool {
        procedure::is_repeatable(Self::PROCEDURE)
    }

    /// The client cannot know the length of a list before (ULB-4.2-c): there is room for as many entries as a list can
    /// have. If it asks only for their numbers, the size is known.
    fn reply_shape(&self) -> ReplyShape {
        ReplyShape::inline(sizes::STATUS + sizes::OPTIONAL_ATTRIBUTES + Lists::most_bytes(self.mask & mask::ALL))
    }
}

calls! {
    PROGRAM, VERSION_3, procedure::is_repeatable;
    SetAcl, procedure::SETACL, Answer<Option<Attributes>, Option<Attributes>>,
        ReplyShape::inline(sizes::STATUS + sizes::OPTIONAL_ATTRIBUTES);
}

#[cfg(test)]
mod tests {
    use super::{super::v2, *};
    use crate::sample::{Draw, Sample};
    use rpcrdma_xdr::{Decoder, Encode, Encoder};

    fn survives<C: Call<Reply: Encode> + Sample>(draw: &mut Draw) {
        let call = C::sample(draw);
        let mut encoder = Encoder::new();
        call.encode(&mut encoder);
        let message = encoder.finish();
        assert_eq!(message.items().count(), 0, "nothing may be placed directly");
        let octets = message.to_bytes();
        let mut decoder = Decoder::new(octets.clone().into());
        let mut again = Encoder::new();
        C::decode(&mut decoder).unwrap().encode(&mut again);
        decoder.finish().unwrap();
        assert_eq!(again.finish().to_bytes(), octets);
        for end in (0..octets.len()).step_by(4) {
            assert!(C::decode(&mut Decoder::new(octets.slice(..end).into())).is_err(), "cut at {end} of {octets:?}");
        }
    }

    #[test]
    fn drawn_calls_survive_the_wire_and_no_cut_one_is_whole() {
        for seed in 0..200 {
            let draw = &mut Draw::new(seed);
            survives::<GetAcl>(draw);
            survives::<SetAcl>(draw);
            survives::<v2::GetAcl>(draw);
            survives::<v2::SetAcl>(draw);
            survives::<v2::GetAttributes>(draw);
            survives::<v2::Access>(draw);
        }
    }
}
