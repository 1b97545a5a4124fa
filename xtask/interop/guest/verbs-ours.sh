# Our client and our server over this guest's RDMA device, in both versions of RPC-over-RDMA.
step list the devices
rpcrdma devices | tee /job/devices
equal "$(rpcrdma devices --json | wc -l)" 1 "devices"
rpcrdma devices --json | grep -q '"active":true' || fail "its port is not active"

step serve
mount -t tmpfs none /tmp -o size=300M,mode=1777
mkdir -p $SERVED/dir /tmp/cache
head -c 5000001 /dev/urandom >$SERVED/big
echo hello >$SERVED/small
for ((i = 0; i < 300; i++)); do echo $i >$SERVED/dir/f$i; done
serve -v

step the device by its name
rpcrdma ls "$(url / device=$(sed -n '1s/ .*//p' /job/devices))"
grep -q "rpcrdma ls 'nfs://$HOST:$NFS_PORT/?fabric=verbs&mountport=$MOUNT_PORT'" /job/serve.out || fail "the hint names no device"
grep -q 'what the RDMA device carries is not encrypted' /job/serve.log || fail "no warning of what everybody can read"

for version in 1 2; do
    asked=rpcrdma=$version
    step our client, version $version
    rpcrdma ls "$(url / $asked)"
    rpcrdma ping -c 2 -i 0.1 -v "$(url / $asked)" | tee /job/ping-$version
    grep -q "RPC-over-RDMA version $version" /job/ping-$version || fail "not version $version"
    mkdir /tmp/back
    rpcrdma get -q -r "$(url /dir $asked)" "$(url /big $asked)" /tmp/back
    cmp /tmp/back/big $SERVED/big
    diff -r /tmp/back/dir $SERVED/dir
    for size in 0 4097 65537 3000001; do
        head -c $size /dev/urandom >/tmp/back/new-$size
        rpcrdma put -q /tmp/back/new-$size "$(url /new-$size $asked)"
        cmp /tmp/back/new-$size $SERVED/new-$size
        rpcrdma cat "$(url /new-$size $asked)" | cmp - /tmp/back/new-$size
    done
    rpcrdma put -q -r /tmp/back/dir "$(url / $asked)"
    rpcrdma mkdir "$(url /made $asked)"
    rpcrdma mv "$(url /new-4097 $asked)" "$(url /made/moved $asked)"
    rpcrdma ln "$(url /made/moved $asked)" "$(url /made/linked $asked)"
    rpcrdma stat "$(url /made/linked $asked)" | grep -q 'links: 2' || fail "no second link"
    rpcrdma df "$(url / $asked)"
    rpcrdma rm -r "$(url /made $asked)"
    [ ! -e $SERVED/made ] || fail "rm -r left something"
    rm -rf /tmp/back
done
rm -rf $SERVED/*
