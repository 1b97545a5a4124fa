# What rpcinfo finds at HOST, and mounts that ask there for ports: WHO, NFS_PORT. The server's end is between the steps.
hostname "$WHO"
echo "$ADDRESS $WHO" >>/etc/hosts
rpcbind -w
rpc.statd --no-notify

step ask
rpcinfo "$HOST" >/job/all.txt
rpcinfo -p "$HOST" >/job/version-2.txt
rpcinfo -s "$HOST" >/job/short.txt
# rpcinfo asks for the port, and calls procedure 0 of the program there.
for program in "100003 3" "100005 3" "100021 4" "100021 1" "100024 1"; do
    # shellcheck disable=SC2086
    rpcinfo -t "$HOST" $program
done
rpcinfo -u "$HOST" 100000 2
rpcinfo -u "$HOST" 100024 1
rpcinfo -T tcp "$HOST" 100003 3
refused rpcinfo -t "$HOST" 100099 1

step mount without ports
mkdir -p /mnt
mount -t nfs -o vers=3,proto=rdma,mountproto=tcp "$HOST:/" /mnt
mounted /mnt vers=3 proto=rdma local_lock=none
echo "over rdma" >/mnt/rdma
/job/xtask locks /mnt/rdma
nfs_unmount
mount -t nfs -o vers=3,proto=tcp "$HOST:/" /mnt
mounted /mnt vers=3 proto=tcp local_lock=none
equal "$(cat /mnt/rdma)" "over rdma"
/job/xtask locks /mnt/rdma --by flock
nfs_unmount
showmount -e "$HOST" || true

mark asked
await gone
step the server has ended
refused timeout 20 rpcinfo -p "$HOST"
refused timeout 20 rpcinfo -t "$HOST" 100003 3
