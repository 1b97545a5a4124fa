# Soft-iWARP by libibverbs here, our own iWARP on the host: our client here with the server there, and the other way
# round.
step our client by verbs, our server in software
there() { echo "nfs://10.0.2.2:$THERE_PORT${1:-/}?fabric=verbs&mountport=$THERE_MOUNT&rpcrdma=$2"; }
mkdir -p /tmp/cache
for version in 1 2; do
    rpcrdma ls "$(there / $version)"
    rm -rf /tmp/from; mkdir /tmp/from
    rpcrdma get -q -r "$(there /tree $version)" /tmp/from
    (cd /tmp/from/tree && sha256sum --quiet -c /job/sums)
    rpcrdma put -q -r /tmp/from/tree "$(there /by-verbs-$version $version)"
done

step our server by verbs, our client in software
mount -t tmpfs none /tmp -o size=200M,mode=1777
serve
mark serves
await end 200
stop
