# A client that is given delegations, and another that wants the files, as the host tells them. /mnt is the job's
# version, /mnt3 is 3.
modprobe nfsv4
step mount
nfs_mount
NFS_VERSION=3 NFS_TRANSPORT=rdma NFS_PORT=${NFS_PORTS%% *} nfs_mount "" /mnt3
grep " /mnt" /proc/mounts
mark ready
step files
obey
step unmount
nfs_unmount /mnt3
nfs_unmount
