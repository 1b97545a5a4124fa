# Reads and writes by several processes, until the host ends it: calls are under way and memory is exposed at any
# moment.
nfs_mount "rsize=1048576,wsize=1048576"
cd /mnt
dd if=/dev/urandom of=/tmp/large bs=1M count=8 2>/dev/null
cp /tmp/large large
for ((p = 0; p < 3; p++)); do
    (while :; do dd if=/tmp/large of="written-$p" bs=4M oflag=direct 2>/dev/null; done) &
    (while :; do dd if=large of=/dev/null bs=4M iflag=direct 2>/dev/null; done) &
done
mark busy
wait
