//! The engine in version 1, as a sequence of inputs. What is checked stands in `tests/src/fuzz/`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rpcrdma_tests::fuzz::run("engine_v1", input));
