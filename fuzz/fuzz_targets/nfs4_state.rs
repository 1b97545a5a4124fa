//! The state of NFS version 4 against a model. What is checked stands in `tests/src/fuzz/`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rpcrdma_tests::fuzz::run("nfs4_state", input));
