//! The connection manager's private data (RFC 8797). What is checked stands in `tests/src/fuzz/`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rpcrdma_tests::fuzz::run("private_data", input));
