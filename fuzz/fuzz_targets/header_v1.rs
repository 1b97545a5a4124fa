//! Headers of RPC-over-RDMA version 1. What is checked stands in `tests/src/fuzz/`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rpcrdma_tests::fuzz::run("header_v1", input));
