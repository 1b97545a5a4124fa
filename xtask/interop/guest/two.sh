# Two clients with an address each at one server: WHO is left or right, OTHER and OTHER_ADDRESS are the other guest's
# name and address. What the server at STRICT_NFS and STRICT_MOUNT has is for left only.
GREETING=7007
step who calls is told who answers
while :; do echo "$WHO" | busybox nc -l -p $GREETING; done 2>/dev/null &
GREETER=$!
mark ready
await both
for ((i = 0; i < 100; i++)); do
    [ "$(busybox nc -w 2 "$OTHER_ADDRESS" $GREETING </dev/null 2>/dev/null || true)" != "$OTHER" ] || break
    sleep 0.1
done
[ $i -lt 100 ] || fail "$OTHER does not answer at $OTHER_ADDRESS"

step a server for one address
strict() { NFS_PORT=$STRICT_NFS MOUNT_PORT=$STRICT_MOUNT nfs_mount "retry=0" /strict; }
case $WHO in
left) strict; echo here >/strict/left; umount /strict;;
right) refused timeout 30 bash -c "$(declare -f nfs_mount mounted fail strict); strict"; cat /tmp/refused;;
esac

step mount
nfs_mount
cd /mnt
grep -q " /mnt .*,proto=rdma,.*addr=$HOST" /proc/mounts || fail "not mounted as asked: $(grep /mnt /proc/mounts)"

step what each wrote
head -c 300000 /dev/urandom >"$WHO"
sha256sum "$WHO" >"$WHO.sum"
mark wrote
await read
sha256sum -c "$OTHER.sum" >/dev/null

step what was written where the other had read
printf "\n%s was here\n" "$WHO" >>"$OTHER"
sha256sum "$OTHER" >"$OTHER.sum"
mark added
await again
sha256sum -c "$WHO.sum" >/dev/null
equal "$(tail -n 1 "$WHO")" "$OTHER was here"

if [ "$WHO" = left ]; then
    step work while the other cannot be reached
    mark waits
    await alone
    echo alone >alone
    sync
    mark alone
fi
mark last
await end 60
step what was made meanwhile
equal "$(cat alone)" alone
kill $GREETER
cd /
nfs_unmount
