# NFS version 4 as Linux uses it when it is told nothing: mounts without a version and without MOUNT, then with a
# version, over RDMA and TCP, with version 3 beside. NFS_PORT is the port of RDMA, TCP_PORT that of NFS over TCP.
SERVER_OPTIONS="port=$NFS_PORT"
modprobe nfsv4

# mount_with FOLDER OPTIONS: nothing but these options.
mount_with() {
    mkdir -p "$1"
    mount -t nfs -o "$2" "$HOST:$EXPORT" "$1"
}
# work FOLDER: all kinds of things that a file system does.
work() {
    local i sum here=$1
    mkdir "$here"
    cd "$here"
    head -c 3000001 /dev/urandom >/tmp/source
    cp /tmp/source file
    sum=$(sha256sum <file)
    equal "$sum" "$(sha256sum </tmp/source)" "what the page cache has"
    forget
    equal "$(sha256sum <file)" "$sum" "what the server has"
    dd if=/tmp/source of=direct bs=1M oflag=direct 2>/dev/null
    forget
    cmp /tmp/source direct

    step "$here: rename, and over what is there"
    mv file other
    [ ! -e file ] || fail "the old name is there"
    echo over >file
    mv other file
    forget
    equal "$(sha256sum <file)" "$sum" "after a rename"

    step "$here: removed while it is open"
    cp /tmp/source removed
    exec 5<>removed
    rm removed
    [ ! -e removed ] || fail "the removed name is there"
    echo 1 >/proc/sys/vm/drop_caches
    equal "$(sha256sum <&5)" "$sum" "what was removed while it was open"
    exec 5>&-
    # The client removes what it has hidden a moment after the last close.
    for ((i = 0; i < 50; i++)); do
        [ "$(find . -name '.nfs*' | wc -l)" != 0 ] || break
        sleep 0.1
    done
    equal "$(find . -name '.nfs*' | wc -l)" 0 "files that the client has hidden, after the last close"

    step "$here: 300 entries"
    mkdir many
    for ((i = 0; i < 300; i++)); do : >"many/entry-$i"; done
    forget
    equal "$(ls -U many | sort -u | wc -l)" 300 "entries"
    equal "$(ls -lU many | grep -c '^-')" 300 "entries with attributes"
    rm -r many

    step "$here: links"
    ln file hard
    equal "$(stat -c %h file)" 2 "links"
    equal "$(stat -c %i file)" "$(stat -c %i hard)" "inode of the other name"
    ln -s file soft
    equal "$(readlink soft)" file
    equal "$(sha256sum <soft)" "$sum" "through the symbolic link"
    rm hard
    equal "$(stat -c %h file)" 1 "links after one was removed"

    step "$here: attributes"
    chmod 640 file
    chown 1000:1001 file
    touch -d '2001-02-03 04:05:06 UTC' file
    forget
    equal "$(stat -c '%a %u:%g %Y' file)" "640 1000:1001 981173106" "mode, owners, time"
    truncate -s 1000 file
    forget
    equal "$(stat -c %s file)" 1000 "size after truncate"
    equal "$(sha256sum <file)" "$(head -c 1000 /tmp/source | sha256sum)" "what is left"
    truncate -s 5000 file
    equal "$(tail -c 4000 file | tr -d '\0' | wc -c)" 0 "octets in what was added that are not nought"

    step "$here: O_EXCL and append"
    set -C
    echo first >exclusive
    if (echo second >exclusive) 2>/dev/null; then fail "a file was made twice"; fi
    set +C
    echo second >>exclusive
    forget
    equal "$(cat exclusive)" $'first\nsecond'

    step "$here: locks of fcntl and flock"
    local by p ids
    for by in fcntl flock; do
        : >"locked-$by"
        /job/xtask locks "locked-$by" --by $by
        : >"counted-$by"
        ids=()
        for ((p = 0; p < 4; p++)); do
            /job/xtask locks "counted-$by" --by $by --count 10 & ids+=($!)
        done
        for p in "${ids[@]}"; do wait "$p" || fail "a process that counts under a lock of $by failed"; done
        forget
        equal "$(cat "counted-$by")" "$(seq 1 40)" "numbers that four processes counted under a lock of $by"
    done
    cd /
}

step mount without a version, without MOUNT
mount_with /mnt "proto=rdma,$SERVER_OPTIONS"
mounted /mnt vers=4.2 proto=rdma
work /mnt/default
mark mounted
step unmount and mount again
nfs_unmount
mount_with /mnt "proto=rdma,$SERVER_OPTIONS"
mounted /mnt vers=4.2 proto=rdma
equal "$(stat -c %s /mnt/default/file)" 5000 "size after a new mount"
nfs_unmount

step version 4.1 over RDMA
mount_with /mnt "vers=4.1,proto=rdma,$SERVER_OPTIONS"
mounted /mnt vers=4.1 proto=rdma
work /mnt/minor-1
nfs_unmount

# Linux would go on with the connection of a mount that is there, RDMA or not: none is.
step version 4.2 over TCP
mount_with /mnt "proto=tcp,port=$TCP_PORT"
mounted /mnt vers=4.2 proto=tcp
work /mnt/tcp
nfs_unmount
step version 4.1 over TCP
mount_with /mnt "vers=4.1,proto=tcp,port=$TCP_PORT"
mounted /mnt vers=4.1 proto=tcp
work /mnt/tcp-minor-1
nfs_unmount

step version 3 beside
mount_with /mnt "proto=rdma,$SERVER_OPTIONS"
nfs_mount "" /mnt3
mounted /mnt3 vers=3 proto=rdma
mkdir /mnt/both
echo of four >/mnt/both/four
echo of three >/mnt3/both/three
forget
equal "$(cat /mnt3/both/four)" "of four"
equal "$(cat /mnt/both/three)" "of three"
equal "$(stat -c %i /mnt/both/four)" "$(stat -c %i /mnt3/both/four)" "inode in both versions"
(cd /mnt && find default minor-1 tcp tcp-minor-1 both -type f -exec sha256sum {} +) >/job/sums
nfs_unmount /mnt3
nfs_unmount
