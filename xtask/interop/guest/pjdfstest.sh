# pjdfstest in mounts of two servers, as root: ours at NFS_PORT and MOUNT_PORT, Linux's at LINUX_PORT and LINUX_MOUNT. VERSIONS are
# those of NFS.
modprobe nfsv4
cat >/tmp/config.toml <<'END'
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = true
[dummy_auth]
entries = [["anna", "anna"], ["bert", "bert"]]
END

# suite NAME VERSION PORT MOUNT_PORT EXPORT
suite() {
    local options="vers=$2,proto=rdma,port=$3" begin=$SECONDS
    step "$1 in $2"
    mkdir -p /mnt
    case $2 in
    3) mount -t nfs -o "$options,mountport=$4,mountproto=tcp,nolock" "$HOST:$5" /mnt;;
    *) mount -t nfs -o "$options" "$HOST:/" /mnt;;
    esac
    mkdir "/mnt/suite-$2"
    # It ends with an error if a test fails: that is for the host to judge.
    NO_COLOR=1 RUST_BACKTRACE=0 /job/pjdfstest -c /tmp/config.toml -s /tmp -p "/mnt/suite-$2" >"/job/$1-$2.txt" 2>&1 || true
    tail -n 2 "/job/$1-$2.txt"
    grep -q '^Summary: ' "/job/$1-$2.txt" || fail "the suite did not come to its end"
    echo "$((SECONDS - begin)) s"
    nfs_unmount
}
for version in $VERSIONS; do
    suite ours "$version" "$NFS_PORT" "$MOUNT_PORT" /
    suite linux "$version" "$LINUX_PORT" "$LINUX_MOUNT" /exports
done
