# Linux's client with each service of Kerberos (SERVICES): what two users may and no more, who root is, a tree both
# ways, a user without a ticket. The server's folder is everybody's to write to, and what is made there stays its
# owner's. anna is in group 2000 by what the server knows, and in none but her own here.
anna() { as anna bash -c "cd /mnt && $1"; }
bert() { as bert bash -c "cd /mnt && $1"; }
root() { bash -c "cd /mnt && $1"; }
owner() { stat -c '%u:%g %a' "/mnt/$1"; }
# In version 4 owners and groups went over the wire by name, both ways: the kernel has asked whose number and whose name
# they are.
names() {
    for asked in uid:anna gid:anna gid:common group:2000; do
        grep -q "id_resolv.*$asked" /proc/keys || fail "nobody was asked for $asked: $(grep id_resolv /proc/keys)"
    done
}
gssd

step a tree to copy
mkdir /tmp/in
cd /tmp/in
for size in 0 1 5 1023 1025 3900 4096 8193 65535 65537 262145 1048577 3000001; do
    head -c $size /dev/urandom >size-$size
done
for ((i = 0; i < 3; i++)); do
    mkdir -p "folder-$i/below"
    for ((j = 0; j < 8; j++)); do head -c $((i * 1000 + j * 77)) /dev/urandom >"folder-$i/below/file-$j"; done
done
ln size-4096 hard
ln -s folder-1/below soft
ln -s "$(printf 'x%.0s' {1..1000})" long-link
chmod 600 size-5
touch -d '2001-02-03 04:05:06.789' size-1025
chown -Rh anna:anna .
cd /

step without Kerberos
! (nfs_mount ",sec=sys") >/tmp/refused 2>&1 || fail "mounted with sec=sys"

for sec in $SERVICES; do
    step "mount with $sec"
    tickets anna
    tickets bert
    nfs_mount ",sec=$sec"
    mounted /mnt "sec=$sec"

    step "$sec: a private file"
    anna "umask 077; echo secret >private-$sec"
    equal "$(owner private-$sec)" "1000:1000 600"
    equal "$(anna "cat private-$sec")" secret
    refused bert "cat private-$sec"
    refused bert "echo x >>private-$sec"
    refused bert "chmod 666 private-$sec"
    refused bert "rm -f private-$sec"
    forget
    refused bert "cat private-$sec"

    step "$sec: a group that the server knows"
    anna "echo shared >shared-$sec; chgrp 2000 shared-$sec; chmod 640 shared-$sec"
    equal "$(owner shared-$sec)" "1000:2000 640"
    refused bert "cat shared-$sec"
    anna "touch named-$sec; chgrp common named-$sec"
    equal "$(owner named-$sec)" "1000:2000 644"
    case "$NFS_VERSION" in
    4*) names ;;
    esac
    bert "echo his >his-$sec; chmod 600 his-$sec"
    refused bert "chgrp 2000 his-$sec"
    refused anna "cat his-$sec"

    step "$sec: root is nobody"
    refused root "cat private-$sec"
    refused root "chown 1001 private-$sec"
    root "echo machine >machine-$sec"
    equal "$(owner machine-$sec)" "65534:65534 644"
    equal "$(bert "cat machine-$sec")" machine
    refused bert "echo x >>machine-$sec"

    step "$sec: a tree, both ways"
    as anna cp -a /tmp/in "/mnt/tree-$sec"
    forget
    as anna diff -r --no-dereference /tmp/in "/mnt/tree-$sec"
    as anna cp -a "/mnt/tree-$sec" "/tmp/out-$sec"
    diff -r --no-dereference /tmp/in "/tmp/out-$sec"
    cd "/mnt/tree-$sec"
    [ hard -ef size-4096 ] || fail "the hard link is not one file with its other name"
    equal "$(stat -c '%y' size-1025 | cut -c1-23)" "2001-02-03 04:05:06.789"
    equal "$(stat -c '%u:%g %a' size-5)" "1000:1000 600"
    cd /
    as anna dd if=/tmp/in/size-3000001 of="/mnt/direct-$sec" bs=1M conv=fsync 2>/dev/null
    as anna dd if="/mnt/direct-$sec" of=/tmp/direct bs=1M iflag=direct 2>/dev/null
    as anna cmp /tmp/in/size-3000001 /tmp/direct
    rm -rf "/tmp/out-$sec" /tmp/direct
    (cd /tmp/in && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"/job/sums-$sec"

    step "$sec: a user without a ticket"
    nfs_unmount
    no_tickets bert
    nfs_mount ",sec=$sec"
    refused bert "cat machine-$sec"
    equal "$(anna "cat private-$sec")" secret
    nfs_unmount
done
