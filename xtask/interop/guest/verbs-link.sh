# The link is lost, and a device is removed, while data goes over it: what can go on goes on with the data whole, what
# cannot ends with clear words, and the server holds nothing of those it lost.
mount -t tmpfs none /tmp -o size=400M,mode=1777
mkdir -p $SERVED /tmp/cache
# held DEVICE: what programs have of it. Where handles are windows the pool stays registered, in no more pieces than
# here.
MOST_REGIONS=16
held() {
    local has
    has=$(rdma resource show "$1" | sed 's/^[0-9]*: //; s/ ctx [0-9]* / /')
    if [ $DEVICE = rxe ] && [ "$(sed 's/.* mr \([0-9]*\) .*/\1/' <<<"$has")" -le $MOST_REGIONS ]; then sed 's/ mr [0-9]*//' <<<"$has"; else echo "$has"; fi
}
# quiet: the server comes back to what it had at first.
quiet() {
    local i
    for ((i = 0; i < 400; i++)); do [ "$(held far0)" != "$AT_FIRST" ] || return 0; sleep 0.1; done
    fail "the server still has $(held far0), at first it had $AT_FIRST"
}
# await_log WORDS [SECONDS]: the server says so, after where the log was at the last begin.
await_log() {
    local i
    for ((i = 0; i < ${2:-60} * 10; i++)); do
        ! tail -n +$((LINES_BEFORE + 1)) /job/serve.log | grep -qF -- "$1" || return 0
        sleep 0.1
    done
    fail "the server did not say \"$1\" within ${2:-60} s"
}
# begin: a transfer to the server in the background, of which something has arrived. begin_back: from the server.
under_way() {
    local i
    for ((i = 0; i < 300; i++)); do [ -z "$(find "$1" -type f ! -name kept -size +1M)" ] || break; kill -0 $CLIENT 2>/dev/null || break; sleep 0.05; done
    kill -0 $CLIENT 2>/dev/null || fail "the client was done before it was disturbed: $(tail -3 /job/client.log)"
}
begin() {
    LINES_BEFORE=$(wc -l </job/serve.log)
    rpcrdma put -q /tmp/large "$(url /large)" >/job/client.log 2>&1 &
    CLIENT=$!
    under_way $SERVED
}
begin_back() {
    LINES_BEFORE=$(wc -l </job/serve.log)
    mkdir /tmp/back
    rpcrdma get -q "$(url /kept)" /tmp/back/large >/job/client.log 2>&1 &
    CLIENT=$!
    under_way /tmp/back
}
# whole: the transfer ends well, what arrived is what was sent, and the server serves others and holds nothing.
whole() {
    wait $CLIENT || fail "the client did not go on: $(tail -3 /job/client.log)"
    if [ -d /tmp/back ]; then cmp /tmp/large /tmp/back/large; rm -r /tmp/back
    else cmp /tmp/large $SERVED/large; rpcrdma rm "$(url /large)"; fi
    quiet
    rpcrdma ls "$(url)" >/dev/null
    quiet
}

# unplug DEVICE: removes it. The kernel waits for all who use it, and cannot be stopped from waiting. plug END: brings
# it back.
unplug() {
    local i
    rdma link delete $1 &
    for ((i = 0; i < 600; i++)); do kill -0 $! 2>/dev/null || break; sleep 0.1; done
    if kill -0 $! 2>/dev/null; then fail "the removal of $1 waits for somebody"; fi
    wait $! || fail "$1 cannot be removed"
}
plug() { rdma link add ${1}0 type $DEVICE netdev $1; }

step two devices
pair
head -c 40000000 /dev/urandom >/tmp/large
serve -v
rpcrdma put -q /tmp/large "$(url /kept)"
rpcrdma ls "$(url)"
sleep 2
AT_FIRST=$(held far0)
echo "the server has $AT_FIRST"

for transfer in begin begin_back; do
    step what is sent is lost for 3 s, $transfer
    $transfer; silence; sleep 3; sound; whole
done

# Soft-iWARP does not copy what it need not report, and TCP sends it again from the server's memory: in one of seven of
# these transfers it had other data by then.
for turn in 1 2; do
    step what is sent is lost again and again, $turn
    begin_back
    for i in 1 2 3 4 5 6 7 8; do silence; sleep 0.3; sound; sleep 0.02; done
    whole
done

for end in far near; do
    step the interface is down for 3 s, $end
    begin; ip link set $end down; sleep 3; up $end
    if [ $DEVICE = rxe ]; then
        # Soft-RoCE's own queue pair for the connection manager may have failed meanwhile, and does not come back: its
        # device is made anew, under both programs.
        sleep 2
        rdma resource show qp type GSI
        for gone in $(rdma resource show qp type GSI | sed -n 's/^link \([a-z]*\)0.* state ERR .*/\1/p'); do unplug ${gone}0; plug $gone; done
    fi
    whole
    # A program that has looked for its device again has all of them open, and the other could not be removed.
    stop
    serve -v
done

step what is sent is lost for 45 s
begin; silence; sleep 45; sound
# The server, which reads from the client, knows by now that nobody answers: RoCE's device after its retries, iWARP,
# where TCP has more patience, by the time.
case $DEVICE in
rxe) await_log "the peer does not answer (status 12)";;
siw) await_log "made no progress for 30 seconds";;
esac
grep "connection ended" /job/serve.log | tail -1
whole

step the device of the client is removed
begin
unplug near0
sleep 1
plug near
whole

step the device of the server is removed
begin
unplug far0
await_log "the RDMA device was removed"
plug far
await_log "the RDMA device is back"
whole

step what is sent is lost for good
# It tries for two minutes, and ends with the attempt that is under way then.
begin; silence
if wait $CLIENT; then fail "the client was done"; fi
cat /job/client.log
grep -qE "could not be restored for 1[2-5][0-9] seconds" /job/client.log || fail "the client does not say how long it tried"
quiet
sound
# What was not whole has not got its name; the client could not remove it from a server that it did not reach.
for name in $(rpcrdma ls "$(url)" | grep '^\.large\.rpcrdma-'); do rpcrdma rm "$(url "/$name")"; done
if rpcrdma ls "$(url)" | grep large; then fail "something is left of the file"; fi
quiet

kill -0 $SERVER || fail "the server is not there"
stop
