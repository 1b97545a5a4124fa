# What goes wrong with devices: each has its own clear words, nothing crashes, and what can go on goes on.
mount -t tmpfs none /tmp -o size=300M,mode=1777
mkdir -p $SERVED /tmp/cache
# says WORDS COMMAND...: the command fails and says so.
says() {
    local words=$1
    shift
    if timeout 30 "$@" >/tmp/said 2>&1; then fail "was done: $*"; fi
    cat /tmp/said
    grep -qF -- "$words" /tmp/said || fail "it said nothing of \"$words\": $*"
}

step no device
rdma link delete rxe0
says "rdma link" rpcrdma devices
says "rdma link" rpcrdma ping -c 1 "$(url)"
rdma link add rxe0 type rxe netdev eth0
rpcrdma devices

step another device
says "there is rxe0" rpcrdma serve $SERVED --fabric verbs --device mlx9_9 --listen $HOST:0 --state /tmp/state
says "there is rxe0" rpcrdma ping -c 1 "$(url / device=mlx9_9)"
says "is on no RDMA device" rpcrdma serve $SERVED --fabric verbs --listen 192.0.2.1:0 --state /tmp/state

step a port that is down
ip link set eth0 down
says "no port of rxe0 is active" rpcrdma serve $SERVED --fabric verbs --device rxe0 --listen $HOST:0 --state /tmp/state
ip link set eth0 up
for ((i = 0; i < 50; i++)); do ! rpcrdma devices | grep -q ' active' || break; sleep 0.1; done

step a memory lock limit that is too small
chmod 666 /dev/infiniband/*
mkdir -m 700 /tmp/anna; chown 1000:1000 /tmp/anna
says "may lock" setpriv --reuid 1000 --regid 1000 --clear-groups bash -c "ulimit -l 1024; exec rpcrdma serve $SERVED --fabric verbs --listen $HOST:0 --mountd $HOST:0 --state /tmp/anna"
grep -q LimitMEMLOCK /tmp/said || fail "nothing on how to raise it"

step the server is killed under load, and comes back
head -c 60000000 /dev/urandom >/tmp/large
serve
rpcrdma put -q /tmp/large "$(url /large)" &
CLIENT=$!
# A first connection that is refused is no reason to wait: data must be under way.
for ((i = 0; i < 200; i++)); do [ -z "$(find $SERVED -type f -size +1M)" ] || break; sleep 0.1; done
kill -0 $CLIENT || fail "the client was done before it was disturbed"
kill -9 $SERVER; wait $SERVER || true
sleep 1
serve
wait $CLIENT || fail "the client did not go on"
cmp /tmp/large $SERVED/large
stop
