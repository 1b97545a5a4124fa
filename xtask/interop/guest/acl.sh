# Access control lists of version 3 in mounts of two servers: ours at HOST, NFS_PORT and MOUNT_PORT, Linux's at LINUX,
# LINUX_PORT and LINUX_MOUNT, both with their lock managers. What came of each step goes to a file for each server: the
# host compares them.
hostname "$WHO"
echo "$ADDRESS $WHO" >>/etc/hosts
rpcbind -w
rpc.statd --no-notify

anna() { setpriv --reuid 1000 --regid 1000 --clear-groups -- bash -c "cd /mnt/acl && $1"; }
bert() { setpriv --reuid 1001 --regid 1001 --clear-groups -- bash -c "cd /mnt/acl && $1"; }
# try WORDS...: what a command prints, and whether it succeeds.
try() { echo "\$ $*"; local status=0; "$@" 2>&1 || status=$?; echo "-> $status"; }

lists() {
    cd /mnt/acl
    umask 022
    echo secret >file
    chmod 600 file
    try getfacl -n file
    try anna 'cat file'
    try setfacl -m u:1000:r file
    try getfacl -n file
    try anna 'cat file'
    try anna 'echo x >>file'
    try bert 'cat file'
    try setfacl -m u:1001:rw,g:2000:r,m::r file
    try getfacl -n file
    try bert 'cat file'
    try bert 'echo x >>file'
    # The mode of the group is that of the mask.
    try stat -c '%a' file
    try chmod 660 file
    try getfacl -n file
    try bert 'echo more >>file'
    try setfacl -x u:1000 file
    try anna 'cat file'
    try chown 1000:2000 file
    try getfacl -n file
    # Who does not own it may not change it.
    try bert 'setfacl -m u:1001:rwx file'
    try anna 'setfacl -m u:1001:- file'
    try bert 'cat file'
    try setfacl -b file
    try getfacl -n file
    try stat -c '%a' file

    mkdir folder
    try setfacl -d -m u:1001:rwx,g:2000:rx,o::- folder
    try getfacl -n folder
    try touch folder/new
    try mkdir folder/below
    try getfacl -n folder/new folder/below
    (umask 077; echo x >folder/masked)
    try getfacl -n folder/masked
    try setfacl -m u:1000:rwx folder
    try anna 'echo mine >folder/annas'
    try getfacl -n folder/annas
    try bert 'cat folder/annas'
    try ln -s new folder/link
    try getfacl -n folder/link
    try setfacl -k folder
    try getfacl -n folder
    try touch folder/later
    try getfacl -n folder/later
    # A list of a hundred users.
    try setfacl -m "$(seq -f 'u:%g:r' -s, 5000 5099)" file
    getfacl -n file | grep -c '^user:5'
    # In an order that is not the file system's.
    find folder | sort | xargs getfacl -n
    try setfacl -m u:1000:rw /mnt/acl/nothing
    try setfacl -d -m u:1000:rw file
    ls -l file folder | grep -v '^total' | sed 's/ .* / /'
}

# server NAME HOST PORT MOUNT_PORT EXPORT
server() {
    step "$1"
    mkdir -p /mnt
    mount -t nfs -o "vers=3,proto=$NFS_TRANSPORT,port=$3,mountport=$4,mountproto=tcp" "$2:$5" /mnt
    mounted /mnt "proto=$NFS_TRANSPORT" local_lock=none
    mkdir /mnt/acl
    chmod 777 /mnt/acl
    (set +e; lists >"/job/lists-$1.txt" 2>&1)
    # What another mount sees is what the server keeps.
    nfs_unmount
    mount -t nfs -o "vers=3,proto=$NFS_TRANSPORT,port=$3,mountport=$4,mountproto=tcp" "$2:$5" /mnt
    (cd /mnt && find acl | sort | xargs getfacl -n) >>"/job/lists-$1.txt" 2>&1
    nfs_unmount
}
server linux "$LINUX" "$LINUX_PORT" "$LINUX_MOUNT" /exports
server ours "$HOST" "$NFS_PORT" "$MOUNT_PORT" /
