# Two clients with an address each at one server take locks from each other, as the host tells them: WHO is left or
# right, MOUNT are the options of the mount.
# Clients of one name are one client.
hostname "$WHO"
modprobe nfsv4
step mount
mkdir -p /mnt
mount -t nfs -o "$MOUNT" "$HOST:/" /mnt
grep " /mnt " /proc/mounts

mark ready
step locks
obey
step unmount
nfs_unmount
