# The same device by an IPv6 address: our client and Linux's, with our server.
step over IPv6
ip -6 address add fd00::15/64 dev eth0 nodad
HOST4=$HOST
HOST=[fd00::15]
# The device's table of addresses follows the interface's.
for ((i = 0; i < 50; i++)); do ! rpcrdma devices | grep -q 'fd00::15' || break; sleep 0.1; done
mkdir -p $SERVED /mnt6
serve
head -c 300001 /dev/urandom >/tmp/six
for version in 1 2; do
    rpcrdma put -q /tmp/six "$(url /six-$version rpcrdma=$version)"
    rpcrdma cat "$(url /six-$version rpcrdma=$version)" | cmp - /tmp/six
done
mount -t nfs -o "vers=3,proto=rdma6,port=$NFS_PORT,mountport=$MOUNT_PORT,mountproto=tcp6,nolock" "$HOST:/" /mnt6
cp /tmp/six /mnt6/linux
forget
cmp /mnt6/linux /tmp/six
cmp /mnt6/six-1 /tmp/six
umount /mnt6
stop
rm -rf $SERVED/*
HOST=$HOST4
