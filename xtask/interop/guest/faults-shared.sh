# Two clients of one address work on the same files at the same time: WHO is 0 or 1. They write the records of one file
# by turns, of an odd length and around the page cache, and make names in one folder. Each then checks what both have
# written, and removes the other's names.
step mount
nfs_mount "noac,lookupcache=none"
cd /mnt
RECORDS=60 OCTETS=3001
other=$((1 - WHO))
seq 1000000 1060000 >/tmp/numbers
head -c $((2 * RECORDS * OCTETS)) /tmp/numbers >/tmp/wanted
mark ready
await work 200
step records
for ((i = 0; i < RECORDS; i++)); do
    place=$((2 * i + WHO))
    dd if=/tmp/wanted of=records bs=$OCTETS skip=$place seek=$place count=1 conv=notrunc oflag=direct 2>/dev/null
    echo "$i" >"name-$WHO-$i.new"
    mv "name-$WHO-$i.new" "name-$WHO-$i"
    mkdir "folder-$WHO-$i"
    # A name of the other is there with its content, or not at all.
    if [ -e "name-$other-$i" ]; then equal "$(cat "name-$other-$i")" "$i" "name-$other-$i"; fi
done
mark written
await check 200
step what both wrote
cmp /tmp/wanted records
equal "$(ls | grep -c '^name-[01]-[0-9]*$')" $((2 * RECORDS)) names
equal "$(ls | grep -c '^folder-[01]-[0-9]*$')" $((2 * RECORDS)) folders
mark checked
await remove 200
step each removes the names of the other
for ((i = 0; i < RECORDS; i++)); do
    rm "name-$other-$i"
    rmdir "folder-$other-$i"
done
mark removed
await end 200
equal "$(ls | tr '\n' ' ')" "records " "what is left"
cd /
nfs_unmount
