# Copies files to the server and back, and compares them, until the host says "enough" and at least ROUNDS were made.
# SIZE: octets of each. NAMES=1: names are made, changed and removed as well, each once: a call that is repeated after a
# lost reply must not fail. DIRECT=1: files are never read through the page cache, so all READs of a command are under
# way at once; otherwise every second file is. One file stays open all the time and is written at each round: what is
# open has to outlive what happens to the server. The longest time that one command took is left in /job/longest, in
# milliseconds.
longest=0 rounds=0
timed() { # timed COMMAND...
    local begin=${EPOCHREALTIME/./} took
    "$@"
    took=$(((${EPOCHREALTIME/./} - begin) / 1000))
    if [ "$took" -gt "$longest" ]; then longest=$took slowest="$*"; fi
}
step mount
nfs_mount "${MOUNT_OPTIONS:-}"
mkdir /mnt/copies
cd /mnt/copies
exec 7<>kept
mark copying
while [ ! -e /job/go-enough ] || [ "$rounds" -lt "${ROUNDS:-1}" ]; do
    rounds=$((rounds + 1)) file=copy-$((rounds % 5))
    step "round $rounds"
    echo "round $rounds" >&7
    head -c $((SIZE - rounds % 7)) /dev/urandom >/tmp/$file
    timed dd if=/tmp/$file of=$file bs=256k conv=fsync 2>/dev/null
    if [ "${DIRECT:-0}" = 1 ] || [ $((rounds % 2)) = 0 ]; then
        timed dd if=$file of=/tmp/back bs=4M iflag=direct 2>/dev/null
    else
        echo 3 >/proc/sys/vm/drop_caches
        timed dd if=$file of=/tmp/back bs=4M 2>/dev/null
    fi
    cmp /tmp/$file /tmp/back
    if [ "${NAMES:-0}" = 1 ]; then
        for ((i = 0; i < 3; i++)); do
            timed mkdir "folder-$i"
            timed mv "folder-$i" "moved-$i"
            timed ln $file "link-$i"
            timed ln -s $file "symbolic-$i"
            (set -C; echo x >"exclusive-$i")
            timed rm "link-$i" "symbolic-$i" "exclusive-$i"
            timed rmdir "moved-$i"
        done
    fi
done
step what was open all the time
sync
equal "$(stat -c %i - <&7)" "$(stat -c %i kept)" "the inode of what is open"
exec 7>&-
equal "$(sha256sum <kept)" "$(seq -f 'round %.0f' "$rounds" | sha256sum)" "what was written to a file that stayed open"
step everything once more
forget
sha256sum kept >>/job/sums
for file in copy-*; do
    cmp "/tmp/$file" "$file"
    sha256sum "$file" >>/job/sums
done
echo "$longest" >/job/longest
echo "$rounds rounds, the longest command took $longest ms: ${slowest:-}"
cd /
nfs_unmount
