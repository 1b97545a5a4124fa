//! Arguments and results of NLM, and calls to a lock manager. What is checked stands in `tests/src/fuzz/`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rpcrdma_tests::fuzz::run("nlm", input));
