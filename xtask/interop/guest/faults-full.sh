# The server's disk is full: the writer hears of it, what was there stays, and it goes on when there is room again.
# ROOM: MiB of the disk.
nfs_mount
cd /mnt
step what is there before
head -c 3000001 /dev/urandom >/tmp/before
cp /tmp/before before
sync
step a file that is too large, through the page cache
dd if=/dev/urandom of=/tmp/large bs=1M count=$((ROOM + 4)) 2>/dev/null
refused dd if=/tmp/large of=large bs=64k conv=fsync
grep -q "No space left on device" /tmp/refused || fail "the error was: $(cat /tmp/refused)"
step the same around the page cache
rm large
refused dd if=/tmp/large of=direct bs=1M oflag=direct
grep -q "No space left on device" /tmp/refused || fail "the error was: $(cat /tmp/refused)"
step what was written before the end of the room is right
length=$(stat -c %s direct)
[ "$length" -gt 0 ] || fail "nothing was written at all"
head -c "$length" /tmp/large | cmp - direct
forget
cmp /tmp/before before
head -c "$length" /tmp/large | cmp - direct
step full: small things
: >full-name 2>/dev/null || true
refused dd if=/tmp/large of=small bs=8k count=1 conv=fsync
cmp /tmp/before before
mark full
await room 120
step there is room again
rm -f large small full-name direct
forget
head -c 6000007 /tmp/large >/tmp/again
dd if=/tmp/again of=again bs=64k conv=fsync 2>/dev/null
dd if=/tmp/large of=direct bs=1M count=3 oflag=direct 2>/dev/null
forget
cmp /tmp/again again
head -c 3145728 /tmp/large | cmp - direct
cmp /tmp/before before
sha256sum before again direct >/job/sums
cd /
nfs_unmount
