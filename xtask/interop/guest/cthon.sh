# cthon04's lock tests in mounts of two servers, version 3 over RDMA with locks: ours at HOST, NFS_PORT and MOUNT_PORT,
# Linux's at LINUX, LINUX_PORT and LINUX_MOUNT.
hostname "$WHO"
echo "$ADDRESS $WHO" >>/etc/hosts
rpcbind -w
rpc.statd --no-notify

# suite NAME HOST PORT MOUNT_PORT EXPORT
suite() {
    local begin=$SECONDS status
    step "$1"
    mkdir -p /mnt
    mount -t nfs -o "vers=3,proto=$NFS_TRANSPORT,port=$3,mountport=$4,mountproto=tcp" "$2:$5" /mnt
    mkdir /mnt/cthon
    # A test that fails ends the program, and the host judges what stands in its output.
    for program in $PROGRAMS; do
        status=0
        "/job/$program" /mnt/cthon >"/job/$program-$1.txt" 2>&1 || status=$?
        echo "status $status" >>"/job/$program-$1.txt"
        rm -f /mnt/cthon/*
    done
    echo "$((SECONDS - begin)) s"
    nfs_unmount
}
suite linux "$LINUX" "$LINUX_PORT" "$LINUX_MOUNT" /exports
suite ours "$HOST" "$NFS_PORT" "$MOUNT_PORT" /
