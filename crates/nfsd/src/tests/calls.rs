//! Procedures that exist and that do not, and malformed arguments.

use crate::{
    MemoryFs,
    testing::{Client, env, wait},
};
use proptest::prelude::*;
use rpcrdma_nfs::{
    mount::{self},
    v3::{self, Procedure},
};
use rpcrdma_oncrpc::{Outcome, Rejection};
use rpcrdma_xdr::Payload;
use std::sync::Arc;

#[test]
fn every_procedure_is_there_and_no_other() {
    let client = Client::serving(Arc::new(MemoryFs::new(1 << 20, &env())));
    for procedure in Procedure::ALL {
        let asked = client.raw(v3::PROGRAM, v3::VERSION, procedure as u32, Payload::new()).map(|_| ());
        let expected = if procedure == Procedure::Null { Ok(()) } else { Err(Rejection::GarbageArgs) };
        assert_eq!(asked, expected, "{}", procedure.name());
    }
    let unknown = client.raw(v3::PROGRAM, v3::VERSION, 22, Payload::new()).map(|_| ());
    assert_eq!(unknown, Err(Rejection::ProcedureUnavailable));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn arbitrary_arguments_are_survived(
        procedure in 0u32..25,
        real_handle in any::<bool>(),
        octets in prop::collection::vec(any::<u8>(), 0..200),
        mount_too in any::<bool>(),
    ) {
        let client = Client::serving(Arc::new(MemoryFs::new(1 << 20, &env())));
        let mut args = Vec::new();
        if real_handle {
            let root = client.root();
            args.extend_from_slice(&(root.as_slice().len() as u32).to_be_bytes());
            args.extend_from_slice(root.as_slice());
        }
        args.extend_from_slice(&octets);
        let program = if mount_too { mount::PROGRAM } else { v3::PROGRAM };
        let outcome = wait(client.send(program, 3, procedure, Payload::from(bytes::Bytes::from(args))));
        prop_assert!(matches!(outcome, Outcome::Reply(_)));
    }
}
