# The crate fsx on a file of our server: OPS operations with SEED, with copies, holes and allocations of NFS 4.2.
cat >/tmp/fsx.toml <<'END'
flen = 1500000
[opsize]
max = 300000
[weights]
close_open = 1
invalidate = 1
mapread = 10
mapwrite = 10
read = 10
write = 10
truncate = 5
fsync = 1
fdatasync = 1
posix_fallocate = 3
punch_hole = 3
sendfile = 3
posix_fadvise = 1
copy_file_range = 5
END
step "$OPS operations with seed $SEED"
nfs_mount rsize=262144,wsize=262144
/job/fsx -f /tmp/fsx.toml -N "$OPS" -S "$SEED" -P /job /mnt/fsx || fail "fsx failed; what it wanted is in /job/fsx.fsxgood"
nfs_unmount
