# `rpcrdma serve` over this guest's RDMA device, for what comes after. ours COMMAND ARGUMENTS...: our command, its URLs
# by url PATH [MORE].
export HOST=10.0.2.15 NFS_PORT=20049 MOUNT_PORT=20048 EXPORT=/ PATH=$PATH:/job RUST_BACKTRACE=1 XDG_CACHE_HOME=/tmp/cache
SERVED=/tmp/served
# How the server takes root.
ROOT=--no-root-squash
url() { echo "nfs://$HOST${1:-/}?fabric=verbs&mountport=$MOUNT_PORT${2:+&$2}"; }
# serve [ARGUMENTS...]: until it is ready.
serve() {
    local i
    mkdir -p $SERVED /tmp/state
    # What an earlier server has said is not this one's.
    rm -f /job/serve.out
    rpcrdma serve $SERVED --fabric verbs --listen $HOST:$NFS_PORT --mountd $HOST:$MOUNT_PORT --state /tmp/state $ROOT --threads 2 \
        "$@" >/job/serve.out 2>/job/serve.log &
    SERVER=$!
    for ((i = 0; i < 100; i++)); do
        ! grep -qs ^ready /job/serve.out || return 0
        kill -0 $SERVER 2>/dev/null || break
        sleep 0.1
    done
    fail "the server is not ready: $(tail -3 /job/serve.log)"
}
# stop: ends it in order.
stop() {
    kill $SERVER
    wait $SERVER || fail "the server ended with $?: $(tail -3 /job/serve.log)"
    grep -q ' stopped$' /job/serve.log || fail "the server did not stop in order: $(tail -3 /job/serve.log)"
}
