# What NFS 4.2 lets a server do by itself: clones, copies, holes, extended attributes and ACLs, with Linux's own
# programs.
step mount
nfs_mount
cd /mnt
# Five pieces of which the third is a hole.
for at in 0 1 3 4; do dd if=/dev/urandom of=original bs=1M count=1 seek=$at conv=notrunc 2>/dev/null; done
sum=$(sha256sum <original)
forget
mark written

await copy
step clone
cp --reflink=always original cloned
step copy
/job/xtask ranges copy original copied >/job/copied
mark copied
await "go on"
forget
for name in cloned copied; do equal "$(sha256sum <$name)" "$sum" "$name"; done
echo different >>cloned
equal "$(sha256sum <original)" "$sum" "the original, when its clone is written to"
truncate -s -10 cloned
equal "$(sha256sum <cloned)" "$sum" "the clone, cut where it was cut off"

step holes
cp original holed
sync
fallocate --punch-hole --offset 1048576 --length 1048576 holed
forget
equal "$(stat -c %s holed)" "$(stat -c %s original)" "size with a hole"
equal "$(dd if=holed bs=1M skip=1 count=1 2>/dev/null | tr -d '\0' | wc -c)" 0 "octets in the hole that are not nought"
/job/xtask ranges show holed >/job/holed
equal "$(grep -c '^hole 1048576 2097152$' /job/holed)" 1 "the hole, with the one behind it, among $(tr '\n' ',' </job/holed)"
equal "$(dd if=holed bs=1M count=1 2>/dev/null | sha256sum)" "$(dd if=original bs=1M count=1 2>/dev/null | sha256sum)" "what stands before it"

step room
fallocate --length 3145728 room
forget
equal "$(stat -c %s room)" 3145728 "size of what was allocated"
[ "$(stat -c %b room)" -ge 6144 ] || fail "3 MiB have $(stat -c %b room) blocks"
refused fallocate --length 100000000000 room

step extended attributes
echo text >named
setfattr -n user.colour -v green named
large=$(head -c 3000 /dev/zero | tr '\0' x)
setfattr -n user.large -v "$large" named
forget
equal "$(getfattr --only-values -n user.colour named)" green
equal "$(getfattr --only-values -n user.large named)" "$large" "3,000 octets"
equal "$(getfattr named | grep -c '^user\.')" 2 "names"
setfattr -n user.colour -v blue named
equal "$(getfattr --only-values -n user.colour named)" blue
setfattr -x user.colour named
refused getfattr -n user.colour named
equal "$(getfattr named | grep '^user\.')" user.large "names after one was removed"
mkdir folder
for ((i = 0; i < 100; i++)); do setfattr -n "user.name-$i" -v "$i" folder; done
forget
equal "$(getfattr folder | grep -c '^user\.name-')" 100 "names of a folder"
chmod 600 named
refused setpriv --reuid 1000 --regid 1000 --clear-groups getfattr --only-values -n user.large named

step access control lists
echo secret >guarded
chmod 600 guarded
as_anna() { setpriv --reuid 1000 --regid 1000 --clear-groups "$@"; }
as_bert() { setpriv --reuid 1001 --regid 1001 --clear-groups "$@"; }
refused as_anna cat guarded
nfs4_getfacl guarded >/job/acl-before
nfs4_setfacl -a A::1000:r guarded
forget
nfs4_getfacl guarded >/job/acl
equal "$(as_anna cat guarded)" secret "what the list lets one see"
refused as_bert cat guarded
refused as_anna bash -c 'echo more >>guarded'
grep -q '^A::1000:r' /job/acl || fail "the list has no entry of 1000: $(tr '\n' ',' </job/acl)"

cd /
nfs_unmount
