# What the host's commands to a guest consist of that holds locks; before a script that ends in `obey`.
cat >/tmp/words.sh <<'END'
# holder NAME FILE: a process that holds locks, and does what it is told. The file's name begins at the mount, or at
# the root.
holder() {
    local file=/mnt/$2
    case $2 in /*) file=$2 ;; esac
    mkfifo "/tmp/$1.in" "/tmp/$1.out"
    /job/xtask locks "$file" --commands <>"/tmp/$1.in" 1<>"/tmp/$1.out" 2>"/job/$1.err" &
    echo $! >"/tmp/$1.pid"
}
tell() { local name=$1; shift; echo "$*" >"/tmp/$name.in"; }
# answer NAME SECONDS: what it answers within this time.
answer() { local line; if read -r -t "$2" line <"/tmp/$1.out"; then echo "$line"; else echo nothing; fi; }
ask() { tell "$@"; answer "$1" 40; }
# gone NAME: until the process that was told to end, or killed, has.
gone() {
    local i
    for ((i = 0; i < 300; i++)); do
        [ -e "/proc/$(cat "/tmp/$1.pid")" ] || { rm "/tmp/$1."*; return; }
        sleep 0.1
    done
    echo "$1 is still there"
    return 1
}
# writes FILE: a process that writes to a file, which stays open, and to memory.
writes() {
    (
        exec 7>"/mnt/$1"
        for ((i = 1; ; i++)); do
            [ ! -e /tmp/enough ] || break
            head -c 50000 /dev/urandom >/tmp/block
            dd if=/tmp/block bs=50000 conv=fsync >&7 || break
            cat /tmp/block >>/tmp/written
            # Renamed, so that whoever reads it never finds it empty.
            echo $i >/tmp/blocks.new && mv /tmp/blocks.new /tmp/blocks
            sleep 0.2
        done
        exec 7>&-
        : >/tmp/done
    ) 2>/job/writes.err &
}
# written FILE: ends it, and prints the checksum of what it wrote.
written() {
    local i
    : >/tmp/enough
    for ((i = 0; i < 400; i++)); do
        [ ! -e /tmp/done ] || break
        sleep 0.1
    done
    [ -e /tmp/done ] || { echo "$1 is still written to"; return 1; }
    echo 3 >/proc/sys/vm/drop_caches
    cmp "/mnt/$1" /tmp/written && sha256sum </tmp/written
}
END
export BASH_ENV=/tmp/words.sh
