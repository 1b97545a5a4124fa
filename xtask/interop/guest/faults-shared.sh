# Two clients of one address work on the same files at the same time: WHO is 0 or 1. Records of one file by turns, of any length and at any
# offset, around the page cache; appends with a lock of their own; names in one folder. Each then checks what both have written.
nfs_mount "noac,lookupcache=none"
cd /mnt
RECORDS=60 OCTETS=3001
other=$((1 - WHO))
record() { # record WHO NUMBER: its content, from nothing but its name
    printf '%s-%s-' "$1" "$2" | sha256sum | cut -c1-64 | { read -r word; yes "$word" || true; } 2>/dev/null | head -c $OCTETS
}
for ((i = 0; i < RECORDS; i++)); do record 0 $i >"/tmp/record-0-$i"; record 1 $i >"/tmp/record-1-$i"; done
mark ready
await work
step records
for ((i = 0; i < RECORDS; i++)); do
    dd if="/tmp/record-$WHO-$i" of=records bs=$OCTETS seek=$((2 * i + WHO)) conv=notrunc oflag=direct 2>/dev/null
    # Each makes a name that the other one takes away or changes.
    echo "$i" >"name-$WHO-$i.new"
    mv "name-$WHO-$i.new" "name-$WHO-$i"
    mkdir "folder-$WHO-$i"
    if [ $((i % 10)) = 9 ]; then
        for file in name-"$other"-*[0-9]; do [ ! -e "$file" ] || grep -q '^[0-9]*$' "$file" || fail "$file is not whole"; done
    fi
done
mark written
await check
step what both wrote
for ((i = 0; i < RECORDS; i++)); do cat "/tmp/record-0-$i" "/tmp/record-1-$i"; done >/tmp/wanted
cmp /tmp/wanted records
equal "$(ls | grep -c '^name-[01]-[0-9]*$')" $((2 * RECORDS)) names
equal "$(ls | grep -c '^folder-[01]-[0-9]*$')" $((2 * RECORDS)) folders
step each removes the names of the other
for ((i = 0; i < RECORDS; i++)); do rm "name-$other-$i"; rmdir "folder-$other-$i"; done
mark removed
await end
equal "$(ls | tr '\n' ' ')" "records " "what is left"
cd /
nfs_unmount
