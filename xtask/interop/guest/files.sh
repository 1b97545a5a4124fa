# What else files do: truncate, holes, beyond 4 GiB, append, rename and unlink of open files, O_EXCL, times, kinds of
# files, df, statfs.
nfs_mount
cd /mnt

step truncate
head -c 100000 /dev/urandom >/tmp/t
cp /tmp/t t
for length in 99999 50000 4097 4096 1 0; do
    truncate -s $length t; truncate -s $length /tmp/t
    cmp t /tmp/t
    equal "$(stat -c %s t)" $length
done
truncate -s 70000 t; truncate -s 70000 /tmp/t
forget
cmp t /tmp/t

step holes
truncate -s 20M h
printf middle | dd of=h bs=1 seek=10000000 conv=notrunc 2>/dev/null
forget
equal "$(dd if=h bs=1 skip=9999998 count=10 2>/dev/null | od -An -c | tr -d ' \n')" '\0\0middle\0\0'
[ "$(stat -c %b h)" -lt 2000 ] || fail "20 MiB with 6 octets take $(stat -c %b h) blocks"
equal "$(tr -d '\0' <h)" middle

step beyond 4 GiB
truncate -s 4294967290 big
head -c 70001 /dev/urandom >/tmp/part
for offset in 4294967290 6442450944 1099511627776; do
    dd if=/tmp/part of=big bs=64k oflag=seek_bytes seek=$offset conv=notrunc 2>/dev/null
done
forget
for offset in 4294967290 6442450944 1099511627776; do
    dd if=big bs=64k iflag=skip_bytes,count_bytes skip=$offset count=70001 2>/dev/null | cmp - /tmp/part
done
equal "$(stat -c %s big)" $((1099511627776 + 70001))
truncate -s 5000000000 big
equal "$(stat -c %s big)" 5000000000
dd if=big bs=64k iflag=skip_bytes,count_bytes skip=4294967290 count=70001 2>/dev/null | cmp - /tmp/part

step append
: >a
exec 4>>a 5>>a
for ((i = 0; i < 50; i++)); do echo "four $i" >&4; echo "five $i" >&5; done
exec 4>&- 5>&-
equal "$(wc -l <a)" 100 "lines"
equal "$(grep -c four a)" 50
echo last >>a
forget
equal "$(tail -1 a)" last

step rename over an open file
echo old >target; echo new >source
exec 4<target
mv source target
equal "$(cat target)" new
equal "$(cat <&4)" old "the open file that was replaced"
exec 4<&-
[ ! -e source ] || fail "the old name is still there"

step remove an open file
echo first >gone
exec 4<>gone
rm gone
[ ! -e gone ] || fail "the removed name is still there"
echo second >&4
equal "$(cat /proc/self/fd/4 | head -1)" second
exec 4>&-
forget
# The client removes what it has hidden when the last close is over, which nobody waits for in version 4.
for ((i = 0; i < 50; i++)); do
    [ "$(find . -name '.nfs*' | wc -l)" != 0 ] || break
    sleep 0.1
done
equal "$(find . -name '.nfs*' | wc -l)" 0 "files kept for open handles"

step exclusive creation
set -C
echo one >x
refused bash -c 'set -C; echo two >x'
set +C
equal "$(cat x)" one
mkdir dir
refused mkdir dir

step links
echo linked >l1; ln l1 l2
equal "$(stat -c %h l2)" 2
rm l1
equal "$(cat l2)" linked; equal "$(stat -c %h l2)" 1
ln -s /etc/passwd abs; equal "$(readlink abs)" /etc/passwd
ln -s "$(printf 'y%.0s' {1..4000})" verylong
equal "$(readlink verylong | wc -c)" 4001

step kinds of files
mkfifo fifo; mknod char c 1 3; mknod block b 7 0
equal "$(stat -c '%F %t,%T' char)" "character special file 1,3"
equal "$(stat -c '%F %t,%T' block)" "block special file 7,0"
equal "$(stat -c %F fifo)" fifo
(echo through >fifo &) ; equal "$(cat fifo)" through

step times
touch -d '1970-01-01 00:00:01 UTC' early; equal "$(stat -c %Y early)" 1
touch -d '2038-02-01 00:00:00 UTC' late; forget; equal "$(stat -c %Y late)" 2148595200
touch -d '2001-02-03 04:05:06.123456789 UTC' exact; forget
equal "$(stat -c %.9Y exact)" 981173106.123456789
touch -a -d '2005-01-01 UTC' exact; equal "$(stat -c '%X %Y' exact)" "1104537600 981173106"
before=$(stat -c %Y exact); touch exact
[ "$(stat -c %Y exact)" -gt "$before" ] || fail "touch did not set the time"
sleep 1.1; m=$(stat -c %.9Y dir); : >dir/new
forget
[ "$(stat -c %.9Y dir)" != "$m" ] || fail "a new entry did not change the folder's time"

step modes
: >mode
for mode in 0 400 644 777 1755 2755 4755; do chmod $mode mode; equal "$(stat -c %a mode)" $mode; done
chown 1000:2000 mode; equal "$(stat -c %u:%g mode)" 1000:2000

step df and statfs
df -B1 --output=size,used,avail /mnt 2>/dev/null | tail -1 >/job/df || df -k /mnt | tail -1 >/job/df
stat -f -c '%l %S %b %f %a %c %d' /mnt >/job/statfs
equal "$(stat -f -c %l /mnt)" 255 "longest name"
[ "$(stat -f -c %b /mnt)" -gt 0 ] || fail "no blocks"
cd /
nfs_unmount
