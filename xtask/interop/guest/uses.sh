# What makes both ends use what they agreed on: messages longer than 1,024 octets, chunks of all kinds, several RDMA
# Reads and calls at a time.
nfs_mount "rsize=1048576,wsize=1048576"
mkdir /mnt/uses
cd /mnt/uses

step writes that fit into a Send of 4,096 octets and not into one of 1,024
for ((i = 0; i < 30; i++)); do
    head -c $((1200 + i * 80)) /dev/urandom >/tmp/small
    dd if=/tmp/small of="small-$i" bs=8k oflag=direct 2>/dev/null
    cmp /tmp/small "small-$i"
done

step listings of middling size
for ((i = 0; i < 12; i++)); do
    mkdir "list-$i"
    for ((j = 0; j < 3 + i; j++)); do : >"list-$i/an-entry-with-a-name-of-some-length-$j"; done
done
forget
for ((i = 0; i < 12; i++)); do equal "$(ls -l "list-$i" | grep -c '^-')" $((3 + i)); done

step large writes at once
ids=()
for ((p = 0; p < 4; p++)); do
    dd if=/dev/urandom of="/tmp/large-$p" bs=1M count=8 2>/dev/null
    dd if="/tmp/large-$p" of="large-$p" bs=8M oflag=direct 2>/dev/null & ids+=($!)
done
for id in "${ids[@]}"; do wait "$id"; done

step large reads at once
ids=()
for ((p = 0; p < 4; p++)); do
    (dd if="large-$p" bs=8M iflag=direct 2>/dev/null | cmp - "/tmp/large-$p") & ids+=($!)
done
for id in "${ids[@]}"; do wait "$id"; done

step many calls at once
ids=()
for ((p = 0; p < 4; p++)); do
    dd if=/dev/urandom of="/tmp/back-$p" bs=1M count=4 2>/dev/null
    cp "/tmp/back-$p" "back-$p" & ids+=($!)
done
for id in "${ids[@]}"; do wait "$id"; done
sync
for ((p = 0; p < 4; p++)); do cmp "/tmp/back-$p" "back-$p"; done

step long symbolic links, whose replies come in Reply chunks
ln -s "$(printf 'z%.0s' {1..4090})" link
forget
equal "$(readlink link | wc -c)" 4091
nfs_unmount
