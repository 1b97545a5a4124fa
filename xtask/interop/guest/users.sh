# Permissions of two users: anna (1000, in group 2000) and bert (1001, in none but his own).
anna() { setpriv --reuid 1000 --regid 1000 --groups "$1" -- bash -c "cd /mnt && $2"; }
bert() { setpriv --reuid 1001 --regid 1001 --clear-groups -- bash -c "cd /mnt && $1"; }
nfs_mount
chmod 777 /mnt

step a private file
anna 2000 'umask 077; echo secret >private'
equal "$(stat -c '%u:%g %a' /mnt/private)" "1000:1000 600"
equal "$(anna 2000 'cat private')" secret
refused bert 'cat private'
refused bert 'echo x >>private'
refused bert 'chmod 666 private'
refused bert 'truncate -s 0 private'
refused bert 'touch -d 2001-01-01 private'
equal "$(cat /mnt/private)" secret "what root reads"
forget
refused bert 'cat private'

step a group
anna 2000 'echo shared >shared; chgrp 2000 shared; chmod 640 shared'
chown 1001:2000 /mnt/shared
equal "$(anna 2000 'cat shared')" shared
refused anna 1000 'cat shared'
refused anna 2000 'echo x >>shared'
equal "$(bert 'echo more >>shared; cat shared')" $'shared\nmore'

step many groups
chown 0:3015 /mnt/shared
equal "$(anna "$(seq -s, 3000 3015)" 'cat shared | head -1')" shared

step folders
anna 2000 'mkdir closed; chmod 711 closed; echo known >closed/known; chmod 644 closed/known'
refused bert 'ls closed'
equal "$(bert 'cat closed/known')" known
refused bert 'touch closed/new'
refused bert 'rm -f closed/known'
refused bert 'mv closed/known elsewhere'
anna 2000 'chmod 700 closed'
forget
refused bert 'cat closed/known'

step the sticky bit
mkdir /mnt/sticky; chmod 1777 /mnt/sticky
anna 2000 'echo mine >sticky/mine; chmod 666 sticky/mine'
refused bert 'rm sticky/mine'
refused bert 'mv sticky/mine sticky/his'
anna 2000 'rm sticky/mine'

step giving away
refused anna 2000 'echo x >own; chown 1001 own'
refused bert 'chown 1001 private'
anna 2000 'touch set; chmod 6755 set'
chown 1001:1001 /mnt/set
equal "$(stat -c %a /mnt/set)" 755 "mode after another owner"

step a file without permission that is open
anna 2000 'exec 4>kept; chmod 0 kept; echo written >&4; exec 4>&-; chmod 600 kept; cat kept' >/tmp/kept
equal "$(cat /tmp/kept)" written
nfs_unmount
