# A tree is copied in and out, and compared with checksums: through the cache, from the server, after a remount.
step make a tree
mkdir /tmp/in
cd /tmp/in
for size in 0 1 3 4 5 511 1023 1024 1025 3000 3900 3999 4000 4095 4096 4097 8191 8193 65535 65536 65537 131073 262145 1048575 1048576 1048577 3000001; do
    head -c $size /dev/urandom >size-$size
done
for ((i = 0; i < 8; i++)); do
    mkdir -p "folder-$i/below/further"
    for ((j = 0; j < 12; j++)); do head -c $((i * 1000 + j * 77)) /dev/urandom >"folder-$i/below/file-$j"; done
done
ln size-4097 hard
ln -s folder-1/below soft
ln -s "$(printf 'x%.0s' {1..1000})" long-link
ln -s nowhere dangling
chmod 600 size-5; chmod 755 size-4; chmod 444 size-3
touch -d '2001-02-03 04:05:06.789' size-1025
find . -type f -print0 | sort -z | xargs -0 sha256sum >/tmp/sums
cp /tmp/sums /job/sums

step copy it in
nfs_mount
mkdir /mnt/tree
cp -a /tmp/in/. /mnt/tree
cd /mnt/tree
sha256sum --quiet -c /tmp/sums
diff -r --no-dereference /tmp/in /mnt/tree

step read it from the server
forget
sha256sum --quiet -c /tmp/sums
[ hard -ef size-4097 ] || fail "the hard link is not one file with its other name"
equal "$(stat -c %h hard)" 2 "links"
equal "$(readlink soft)" folder-1/below
equal "$(stat -c %y size-1025 | cut -c1-23)" "2001-02-03 04:05:06.789"
equal "$(stat -c %a size-5)" 600; equal "$(stat -c %a size-4)" 755

step mount it again
nfs_unmount
nfs_mount
cd /mnt/tree
sha256sum --quiet -c /tmp/sums
equal "$(find . | wc -l)" "$(cd /tmp/in && find . | wc -l)" "entries"

step copy it out
forget
cp -a /mnt/tree /tmp/out
diff -r --no-dereference /tmp/in /tmp/out
rm -rf /tmp/out

step change and remove
mv folder-0 renamed; mv size-65537 renamed/
cmp renamed/size-65537 /tmp/in/size-65537
mv renamed folder-0; mv folder-0/size-65537 .
cp -a folder-7 gone; rm -rf gone
[ ! -e gone ] || fail "a removed folder is still there"
nfs_unmount
