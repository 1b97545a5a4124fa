# What fsx wrote is what lies in the served folder.
step what is on the disk
while read -r sum skip name; do
    equal "$(tail -c +$((skip * 1048576 + 1)) "$SERVED/$name" | sha256sum | cut -d' ' -f1)" "$sum" "$name"
done </job/sums
equal "$(grep -c . /job/sums)" "$(grep -c . <<<"$MOUNTS")" "files"
stop
