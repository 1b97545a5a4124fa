# Our client over this guest's RDMA device, with Linux's server in the same guest.
step our client with the kernel\'s server
there() { echo "nfs://$HOST/exports${1:-}?fabric=verbs&mountport=20048&rpcrdma=auto"; }
rpcrdma ls "$(there)"
mkdir /tmp/from
rpcrdma get -q -r "$(there /dir)" "$(there /random.bin)" /tmp/from
cmp /tmp/from/random.bin /exports/random.bin
diff -r /tmp/from/dir /exports/dir
for size in 0 4097 3000001; do
    head -c $size /dev/urandom >/tmp/from/new-$size
    rpcrdma put -q /tmp/from/new-$size "$(there /new-$size)"
    cmp /tmp/from/new-$size /exports/new-$size
    rpcrdma cat "$(there /new-$size)" | cmp - /tmp/from/new-$size
done
rpcrdma put -q -r /tmp/from/dir "$(there /again)"
diff -r /tmp/from/dir /exports/again
rpc.nfsd 0
