//! Prints docs/bindings.md: `cargo run -q -p rpcrdma-nfs --example bindings > docs/bindings.md`.

fn main() {
    print!("{}", rpcrdma_nfs::binding::document());
}
