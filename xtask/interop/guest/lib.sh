# What the jobs' scripts in the guest have in common. Variables come from /job/env: HOST, NFS_PORT, MOUNT_PORT, EXPORT,
# SEED, OPS, ... A script prints "== STEP" before each step; the first command that fails ends the job and names the
# step.
set -eEuo pipefail
STEP=start
trap 'echo "FAILED in step \"$STEP\": line $LINENO: $BASH_COMMAND"' ERR

# step WORDS...: what is done next.
step() { STEP=$*; echo "== $STEP ($(cut -d' ' -f1 /proc/uptime) s)"; }
# fail WORDS...: ends the job.
fail() { echo "FAILED in step \"$STEP\": $*"; exit 1; }
# equal FOUND WANTED [WHAT]
equal() { [ "$1" = "$2" ] || fail "${3:-value}: found \"$1\", wanted \"$2\""; }
# refused COMMAND...: the command must fail.
refused() { if "$@" 2>/tmp/refused; then fail "was allowed: $*"; fi; }

# In a network of the job's own (network.rs) the guest's address is ADDRESS, of PREFIX bits; otherwise QEMU's network
# gives it one.
if [ -n "${ADDRESS:-}" ]; then
    ip -4 addr flush dev eth0
    ip addr add "$ADDRESS/$PREFIX" dev eth0
fi

# In version 4 a client is who its host's name says: two guests are two.
hostname "$GUEST"

# nfs_mount [OPTIONS [FOLDER [PATH]]]: mounts the server at /mnt, or FOLDER, in the version of the job and over its
# transport; options like ",rsize=4096". What is mounted is what was asked for.
nfs_mount() {
    local folder=${2:-/mnt} from=$HOST:${3:-$EXPORT}
    mkdir -p "$folder"
    case $NFS_VERSION in
    2)
        # The mount program refuses version 2, and the kernel has it: it gets the options as they are, and asks MOUNT by
        # itself.
        modprobe nfsv2
        mount -i -t nfs -o "vers=2,proto=$NFS_TRANSPORT,addr=$HOST,port=$NFS_PORT,mountvers=1,mountaddr=$HOST,mountport=$MOUNT_PORT,mountproto=tcp,nolock${1:+,${1#,}}" "$from" "$folder"
        ;;
    3)
        mount -t nfs -o "vers=3,proto=$NFS_TRANSPORT,port=$NFS_PORT,mountport=$MOUNT_PORT,mountproto=tcp,nolock${1:+,${1#,}}" "$from" "$folder"
        ;;
    *)
        modprobe nfsv4
        mount -t nfs -o "vers=$NFS_VERSION,proto=$NFS_TRANSPORT,port=$NFS_PORT${1:+,${1#,}}" "$from" "$folder"
        ;;
    esac
    mounted "$folder" "vers=$NFS_VERSION" "proto=$NFS_TRANSPORT"
}
# mounted FOLDER WORDS...: what the kernel says of the mount.
mounted() {
    local folder=$1 found word
    shift
    found=$(awk -v folder="$folder" '$2 == folder { print $4 }' /proc/mounts)
    for word in "$@"; do
        case ",$found," in *",$word,"*) ;; *) fail "$folder has not $word: $found" ;; esac
    done
}
# nfs_unmount [FOLDER]: with the mount's statistics in /job/mountstats-N before it goes.
UNMOUNTS=0
nfs_unmount() {
    UNMOUNTS=$((UNMOUNTS + 1))
    cp /proc/self/mountstats "/job/mountstats-$UNMOUNTS"
    cd /
    umount "${1:-/mnt}"
}
# forget: reads after it come from the server.
forget() { sync; echo 3 >/proc/sys/vm/drop_caches; }

# mark NAME: tells the host that the job has come so far. await NAME [SECONDS]: waits for the host's word.
mark() { : >"/job/mark-$1"; }
await() {
    local i
    for ((i = 0; i < ${2:-60} * 10; i++)); do
        [ ! -e "/job/go-$1" ] || return 0
        sleep 0.1
    done
    fail "the host did not say \"$1\" within ${2:-60} s"
}
# obey: runs the shell scripts that the host gives, one after the other (Guest::run), until it says "end".
obey() {
    local status
    while [ ! -e /job/go-end ]; do
        if [ -e /job/command ]; then
            status=0
            bash /job/command >/job/command-out 2>&1 </dev/null || status=$?
            rm -f /job/command
            echo $status >/job/command-status.new
            mv /job/command-status.new /job/command-status
        fi
        sleep 0.1
    done
}
