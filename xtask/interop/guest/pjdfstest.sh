# pjdfstest in mounts of two servers, as root: ours at NFS_PORT and MOUNT_PORT, Linux's at LINUX_PORT and LINUX_MOUNT.
# VERSIONS are those of NFS.
modprobe nfsv4
cat >/tmp/all.toml <<'END'
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["anna", "anna"], ["bert", "bert"]]
END
sed 's/^allow_remount.*/allow_remount = true/' /tmp/all.toml >/tmp/remount.toml

# suite NAME VERSION PORT MOUNT_PORT EXPORT
suite() {
    local options="vers=$2,proto=rdma,port=$3" begin=$SECONDS
    step "$1 in $2"
    mkdir -p /mnt
    case $2 in
    3) mount -t nfs -o "$options,mountport=$4,mountproto=tcp,nolock" "$HOST:$5" /mnt;;
    *) mount -t nfs -o "$options" "$HOST:$5" /mnt;;
    esac
    mkdir "/mnt/suite-$2"
    # It ends with an error if a test fails: that is for the host to judge. A test that fails leaves files open, and
    # what is written to is not made read-only: those that want that run alone.
    export NO_COLOR=1 RUST_BACKTRACE=0
    /job/pjdfstest -c /tmp/all.toml -s /tmp -p "/mnt/suite-$2" >"/job/$1-$2.txt" 2>&1 || true
    /job/pjdfstest -c /tmp/remount.toml -p "/mnt/suite-$2" erofs >>"/job/$1-$2.txt" 2>&1 || true
    grep '^Summary: ' "/job/$1-$2.txt"
    equal "$(grep -c '^Summary: ' "/job/$1-$2.txt")" 2 "runs that came to their end"
    echo "$((SECONDS - begin)) s"
    nfs_unmount
}
for version in $VERSIONS; do
    suite ours "$version" "$NFS_PORT" "$MOUNT_PORT" /
    suite linux "$version" "$LINUX_PORT" "$LINUX_MOUNT" /exports
done
