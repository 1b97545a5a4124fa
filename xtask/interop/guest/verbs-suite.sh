# The provider suite, and NFS against a model of it, over this guest's RDMA device.
step the provider suite
export RPCRDMA_VERBS_ADDRESS=10.0.2.15 RUST_BACKTRACE=1
/job/$SUITE --test-threads 1 --nocapture
step NFS over the device
/job/$NFS --test-threads 1 --nocapture
