# Linux serves /exports (in memory, root not squashed, with the flavours SEC if they are named) in all its versions of NFS, by the same path in each: over RDMA
# on port 20049, over TCP on port 2049, mountd on port 20048.
step make what is served
mount -t tmpfs -o mode=0777,size=${EXPORT_SIZE:-300M} none /exports
cd /exports
echo 'hello from linux nfsd' >hello.txt
head -c 3145728 /dev/urandom >random.bin
ln -s hello.txt link
mkdir dir
for ((i = 0; i < 300; i++)); do echo "file $i" >"dir/file-$i"; done
sha256sum hello.txt random.bin >SHA256SUMS
cp SHA256SUMS /job/
chmod -R a+rwX .
cd /job

# What is told to others has a name.
[ -z "${ADDRESS:-}" ] || echo "$ADDRESS $GUEST" >>/etc/hosts

step start nfsd
modprobe nfsd
mount -t rpc_pipefs none /var/lib/nfs/rpc_pipefs
mount -t nfsd none /proc/fs/nfsd
echo 10 >/proc/fs/nfsd/nfsv4leasetime
echo 10 >/proc/fs/nfsd/nfsv4gracetime
# Nothing is delegated in the time of grace of version 3's locks, which nobody here has.
echo 3 >/proc/sys/fs/nfs/nlm_timeout
echo 3 >/proc/sys/fs/nfs/nlm_grace_period
# By itself it takes less than the protocol allows where memory is short.
echo 1048576 >/proc/fs/nfsd/max_block_size
rpcbind -w
echo "/exports *(rw,insecure,no_root_squash,no_subtree_check,fsid=1,sync,sec=${SEC:-sys})" >/etc/exports
exportfs -ra
rpc.statd --no-notify
[ -z "${SEC:-}" ] || gss_server
rpc.mountd --port 20048
rpc.nfsd --rdma=20049 4
echo Y >/proc/fs/nfsd/v4_end_grace
for ((i = 0; i < 100; i++)); do
    ! grep -q rdma /proc/fs/nfsd/portlist || break
    sleep 0.1
done
grep -q rdma /proc/fs/nfsd/portlist || fail "no RDMA listener"
mark serves

step serve
obey
rpc.nfsd 0
