# Random operations on one file for each of the mounts in MOUNTS, all at once and over one connection: lines of OPTIONS
# LENGTH LARGEST BASE MORE. OPS are spread over the lines. Copies of large files beside them keep many calls under way.
cp /job/xtask /tmp/xtask
: >/job/sums
lines=$(grep -c . <<<"$MOUNTS")
number=0
ids=()
step mounts
while read -r options length largest base more; do
    [ -n "$options" ] || continue
    number=$((number + 1))
    nfs_mount "$options" "/mnt-$number"
done <<<"$MOUNTS"
mark mounted
step random operations
number=0
while read -r options length largest base more; do
    [ -n "$options" ] || continue
    number=$((number + 1))
    # shellcheck disable=SC2086
    /tmp/xtask fsx "/mnt-$number/fsx-$number" --ops $(((OPS + lines - 1) / lines)) --seed $((SEED + number)) --length "$length" --largest "$largest" --base "$base" $more & ids+=($!)
done <<<"$MOUNTS"
(
    while [ ! -e /tmp/over ]; do
        head -c 6000001 /dev/urandom >/tmp/large
        cp /tmp/large /mnt-1/large
        cmp /tmp/large /mnt-1/large || { echo "FAILED in step \"copies\": /mnt-1/large differs"; exit 1; }
        sleep 1
    done
) & copies=$!
for id in "${ids[@]}"; do wait "$id"; done
: >/tmp/over
wait $copies
step what the server has
forget
for ((i = 1; i <= number; i++)); do
    sha256sum "/mnt-$i/fsx-$i" | sed "s#/mnt-$i/##" >>/job/sums
    nfs_unmount "/mnt-$i"
done
