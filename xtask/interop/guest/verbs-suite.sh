# The provider suite over this guest's RDMA device.
step the provider suite
export RPCRDMA_VERBS_ADDRESS=10.0.2.15 RUST_BACKTRACE=1
/job/$SUITE --test-threads 1 --nocapture
