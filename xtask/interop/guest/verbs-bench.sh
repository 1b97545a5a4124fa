# `bench` of each call over this guest's RDMA device, and over our iWARP in software on the same loopback.
mount -t tmpfs none /tmp -o size=300M,mode=1777
mkdir -p $SERVED /tmp/cache
head -c 64M /dev/urandom >$SERVED/bench
serve
rpcrdma serve $SERVED --listen $HOST:20149 --mountd $HOST:20148 --state /tmp/state-iwarp --no-root-squash --threads 2 >/job/iwarp.out 2>/job/iwarp.log &
SOFTWARE=$!
for ((i = 0; i < 100; i++)); do ! grep -q ^ready /job/iwarp.out || break; sleep 0.1; done
there() { echo "nfs://$HOST:20149/bench?mountport=20148"; }
# measure ARGUMENTS...: a line each in /job/device.json and /job/software.json.
measure() {
    step "$@"
    rpcrdma bench --json --seconds 2 "$@" "$(url /bench)" | tee -a /job/device.json
    rpcrdma bench --json --seconds 2 "$@" "$(there)" | tee -a /job/software.json
}
measure --op null --depth 1
measure --op null --depth 16
measure --op getattr --depth 16
measure --op read --block 4K --depth 8
measure --op read --block 1M --depth 4
measure --op write --block 4K --depth 8 --overwrite
measure --op write --block 1M --depth 4 --overwrite
kill $SOFTWARE
wait $SOFTWARE || fail "the software server ended with $?"
stop
