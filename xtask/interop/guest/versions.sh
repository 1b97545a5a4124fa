# Linux works in version 1 on a port where others speak version 2: writes, reads back from the server, lists and renames
# in rounds, until the host says "check". Then it reads what the others have made.
step mount
nfs_mount
mkdir /mnt/linux
cd /mnt/linux
mark working
for ((round = 0; ; round++)); do
    [ ! -e /job/go-check ] || break
    step "round $round"
    mkdir "round-$round"
    for ((i = 0; i < 12; i++)); do head -c $((i * 7001 + round)) /dev/urandom >"/tmp/file-$i"; done
    head -c 400000 /dev/urandom >/tmp/file-large
    cp /tmp/file-* "round-$round"
    forget
    for file in /tmp/file-*; do cmp "$file" "round-$round/${file##*/}"; done
    equal "$(ls "round-$round" | wc -l)" 13 entries
    mv "round-$round/file-3" "round-$round/moved"
    ln -s moved "round-$round/link"
    cmp /tmp/file-3 "round-$round/link"
    # What others make at the same time is there to be seen.
    ls -R /mnt >/dev/null || true
    [ "$round" -lt 5 ] || rm -r "round-$((round - 5))"
done
step what the others made
forget
equal "$(ls /mnt/ours-0 | grep -c '^file-')" "$FILES" "files of ours-0"
(cd /mnt && find ours-0 ours-1 -type f -print0 | sort -z | xargs -0 sha256sum) >/job/sums-ours
find . -type f -print0 | sort -z | xargs -0 sha256sum >/job/sums
mark checked
await end 60
cd /
nfs_unmount
