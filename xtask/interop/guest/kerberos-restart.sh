# The server is killed and started again while anna writes, with each service: it knows no context afterwards, which
# costs her time and nothing else.
tickets bert
for sec in $SERVICES; do
    step "$sec: write while the server goes and comes back"
    nfs_mount ",sec=$sec"
    # shellcheck disable=SC2016
    as anna bash -c 'set -e
        cd /mnt
        exec 7>"open-$1"
        for ((i = 0; i < 200; i++)); do
            echo "line $i" >&7
            head -c 40000 /dev/urandom >"/tmp/part-$1-$((i % 7))"
            cp "/tmp/part-$1-$((i % 7))" "part-$1-$((i % 7))"
            [ "$i" != 20 ] || : >"/tmp/going-$1"
            [ ! -e "/tmp/again-$1" ] || [ "$i" -lt 60 ] || break
        done
        exec 7>&-
        seq -f "line %.0f" 0 "$((i < 200 ? i : 199))" | cmp - "open-$1"' - "$sec" &
    WRITER=$!
    while [ ! -e "/tmp/going-$sec" ]; do kill -0 $WRITER || fail "the writer has ended"; sleep 0.1; done
    mark "restart-$sec"
    await "again-$sec"
    : >"/tmp/again-$sec"
    wait $WRITER || fail "the writer ended with $?"
    forget
    for ((i = 0; i < 7; i++)); do as anna cmp "/tmp/part-$sec-$i" "/mnt/part-$sec-$i"; done
    as bert bash -c "echo his >/mnt/after-$sec"
    nfs_unmount
done

