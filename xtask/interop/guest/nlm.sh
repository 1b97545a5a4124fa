# A client of version 3 that locks: WHO is left or right, MOUNT are the options of the mount, EXPORT the server's path.
# What its statd knows is in /job/kept, so that a guest that takes this one's place finds it.
hostname "$WHO"
echo "$ADDRESS $WHO" >>/etc/hosts
step its own rpcbind and statd
if [ ! -e /job/kept ]; then cp -a /var/lib/nfs /job/kept; fi
mount --bind /job/kept /var/lib/nfs
cp -r /var/lib/nfs/sm /job/sm-at-boot
rpcbind -w
# It notifies those that stand in /var/lib/nfs/sm.
rpc.statd
step mount
mkdir -p /mnt
mount -t nfs -o "$MOUNT" "$HOST:$EXPORT" /mnt
grep " /mnt " /proc/mounts
mounted /mnt local_lock=none
mark ready
step locks
obey
step unmount
nfs_unmount
