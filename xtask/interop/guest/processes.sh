# Several processes at once in one mount: of two kinds five each, or as many as WORKERS says.
WORKERS=${WORKERS:-5}
nfs_mount "$MOUNT_OPTIONS"
cd /mnt
step write, read and change at once
mkdir each
writer() {
    head -c 2000003 /dev/urandom >"/tmp/w-$1"
    cp "/tmp/w-$1" "each/$1"
    cmp "/tmp/w-$1" "each/$1"
}
changer() {
    local i
    mkdir "folder-$1"
    for ((i = 0; i < 60; i++)); do
        echo "$1 $i" >"folder-$1/$i"
        mv "folder-$1/$i" "folder-$1/$i.moved"
        ln "folder-$1/$i.moved" "folder-$1/$i.linked"
        rm "folder-$1/$i.moved"
    done
    [ "$(ls "folder-$1" | wc -l)" = 60 ]
}
reader() {
    local i
    for ((i = 0; i < 15; i++)); do
        echo 1 >/proc/sys/vm/drop_caches
        [ "$(sha256sum <common)" = "$(cat /tmp/common.sum)" ] || return 1
    done
}
head -c 5000001 /dev/urandom >common
sha256sum <common >/tmp/common.sum
ids=()
for ((p = 0; p < WORKERS; p++)); do
    writer $p & ids+=($!)
    changer $p & ids+=($!)
done
reader & ids+=($!)
for id in "${ids[@]}"; do wait "$id" || fail "process $id failed"; done
forget
for ((p = 0; p < WORKERS; p++)); do cmp "/tmp/w-$p" "each/$p"; done

step append to one file at once
: >log
ids=()
for ((p = 0; p < 4; p++)); do
    (for ((i = 0; i < 100; i++)); do echo "line of $p number $i" >>log; done) & ids+=($!)
done
for id in "${ids[@]}"; do wait "$id"; done
equal "$(sort -u log | wc -l)" 400 "lines"
equal "$(grep -vc '^line of [0-3] number [0-9]*$' log || true)" 0 "torn lines"

step direct writes and reads at once, to have many calls and Reads under way
ids=()
for ((p = 0; p < 4; p++)); do
    dd if=/dev/urandom of="/tmp/d-$p" bs=1M count=12 2>/dev/null
    dd if="/tmp/d-$p" of="direct-$p" bs=4M oflag=direct 2>/dev/null & ids+=($!)
done
for id in "${ids[@]}"; do wait "$id"; done
ids=()
for ((p = 0; p < 4; p++)); do
    (dd if="direct-$p" bs=4M iflag=direct 2>/dev/null | cmp - "/tmp/d-$p") & ids+=($!)
done
for id in "${ids[@]}"; do wait "$id"; done
nfs_unmount
