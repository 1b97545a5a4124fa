# Names and folders: 10,000 entries or as many as ENTRIES says, deep paths, names of 255 octets, odd octets.
ENTRIES=${ENTRIES:-10000}
nfs_mount
step $ENTRIES entries made here
mkdir /mnt/many
cd /mnt/many
seq -f 'entry-%05.0f' 1 $ENTRIES | xargs touch
equal "$(find . -type f | wc -l)" $ENTRIES "entries"
forget
cd /
nfs_unmount
nfs_mount
equal "$(ls -U /mnt/many | sort | sha256sum)" "$(seq -f 'entry-%05.0f' 1 $ENTRIES | sha256sum)" "names"

step $ENTRIES entries made by the host, with attributes
equal "$(ls -U -l /mnt/hosts | grep -c '^-')" $ENTRIES "entries"
equal "$(ls -U /mnt/hosts | sort -u | wc -l)" $ENTRIES "different names"

step remove while listing
rm -rf /mnt/many
[ ! -e /mnt/many ] || fail "still there"

step names of 255 octets
name=$(printf 'n%.0s' {1..255})
echo long >"/mnt/$name"
equal "$(cat "/mnt/$name")" long
mkdir "/mnt/$(printf 'd%.0s' {1..255})"
refused touch "/mnt/${name}n"
grep -q "too long" /tmp/refused || fail "a name of 256 octets: $(cat /tmp/refused)"

step odd octets
mkdir /mnt/odd
cd /mnt/odd
for name in $'a\nb' $'\x01\x7f' $'\xff\xfe\x80' ' ' '-x' '*' '\' "'" '"' $'\xc3\xa4' '%41' '...' 'a:b' '.hidden'; do
    echo "$name" >"./$name"
    mv "./$name" "./$name moved"
    equal "$(cat "./$name moved")" "$(printf '%s' "$name")"
    ln -s -- "$name" "./$name link"
    equal "$(readlink "./$name link")" "$(printf '%s' "$name")"
done
forget
equal "$(find . -mindepth 1 -print0 | tr -dc '\0' | wc -c)" 28 "entries"

step deep paths
cd /mnt
path=deep
mkdir deep
for ((i = 0; i < 60; i++)); do
    path=$path/$(printf 'level%03d-%050d' $i 0)
done
mkdir -p "/mnt/$path"
echo bottom >"/mnt/$path/file"
forget
equal "$(cat "/mnt/$path/file")" bottom
mv "/mnt/$path/file" /mnt/deep/top
equal "$(cat /mnt/deep/top)" bottom
rm -rf /mnt/deep /mnt/odd
cd /
nfs_unmount
