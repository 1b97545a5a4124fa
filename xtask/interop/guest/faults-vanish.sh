# Mounts of two servers: one idle, one busy. Then the network goes away, and comes back later.
step mounts
nfs_mount "" /busy
NFS_PORT=$IDLE_PORT MOUNT_PORT=$IDLE_MOUNT_PORT nfs_mount "" /idle
head -c 100000 /dev/urandom >/tmp/idle
cp /tmp/idle /idle/file
sync
head -c 8000000 /dev/urandom >/tmp/large
mark mounted
step work over the busy one
rounds=0
while [ ! -e /job/go-enough ]; do
    dd if=/tmp/large of=/busy/large bs=1M oflag=direct 2>/dev/null
    dd if=/busy/large of=/tmp/back bs=1M iflag=direct 2>/dev/null
    cmp /tmp/large /tmp/back
    rounds=$((rounds + 1))
done
echo "$rounds rounds"
step the idle one works again
forget
cmp /tmp/idle /idle/file
cp /tmp/idle /idle/second
umount /idle
umount /busy
