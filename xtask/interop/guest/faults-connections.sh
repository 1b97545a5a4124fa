# Mounts each port of NFS_PORTS: as many connections. All are used at once.
number=0
for NFS_PORT in $NFS_PORTS; do
    number=$((number + 1))
    step "mount $number"
    nfs_mount "" "/mnt-$number"
done
mark mounted
await work 120
step all write at once
ids=()
for ((i = 1; i <= number; i++)); do
    (
        head -c $((100000 + i * 997)) /dev/urandom >"/tmp/file-$i"
        dd if="/tmp/file-$i" of="/mnt-$i/file-$i" bs=64k conv=fsync 2>/dev/null
    ) & ids+=($!)
done
for id in "${ids[@]}"; do wait "$id"; done
step all read what another wrote
forget
ids=()
for ((i = 1; i <= number; i++)); do
    cmp "/tmp/file-$i" "/mnt-$((i % number + 1))/file-$i" & ids+=($!)
done
for id in "${ids[@]}"; do wait "$id"; done
mark worked
await leave 120
step unmount
for ((i = 1; i <= number; i++)); do umount "/mnt-$i"; done
