# Random operations on one file for each of the mounts in MOUNTS: lines of OPTIONS LENGTH LARGEST BASE MORE.
# OPS are spread over the lines.
cp /job/xtask /tmp/xtask
: >/job/sums
lines=$(grep -c . <<<"$MOUNTS")
number=0
while read -r options length largest base more; do
    [ -n "$options" ] || continue
    number=$((number + 1))
    step "$options, length $length, largest $largest, base $base $more"
    nfs_mount "$options"
    case $options in *rsize=*)
        asked=$(sed 's/.*rsize=\([0-9]*\).*/\1/' <<<"$options")
        grep -q "rsize=$asked," /proc/mounts || fail "rsize is not $asked: $(grep /mnt /proc/mounts)";;
    esac
    # shellcheck disable=SC2086
    /tmp/xtask fsx "/mnt/fsx-$number" --ops $(((OPS + lines - 1) / lines)) --seed $((SEED + number)) --length "$length" --largest "$largest" --base "$base" $more
    # A checksum of the end of the file is enough where a hole of gigabytes is before it.
    skip=$((base / 1048576))
    echo "$(tail -c +$((skip * 1048576 + 1)) "/mnt/fsx-$number" | sha256sum | cut -d' ' -f1) $skip fsx-$number" >>/job/sums
    nfs_unmount
done <<<"$MOUNTS"
