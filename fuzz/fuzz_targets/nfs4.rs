//! COMPOUND, CB_COMPOUND and attributes of NFS version 4. What is checked stands in `tests/src/fuzz/`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rpcrdma_tests::fuzz::run("nfs4", input));
