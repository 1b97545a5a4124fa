# `rpcrdma serve` over this guest's RDMA device takes Kerberos, by MIT's library in the guest: for Linux's client here.
step serve with Kerberos
mkdir -p $SERVED /tmp/cache
chmod 1777 $SERVED
ROOT= serve --sec krb5,krb5i,krb5p --keytab /job/server.keytab --tcp $HOST:2049
grep -q 'the server accepts Kerberos' /job/serve.log || fail "the server does not say that it accepts Kerberos"
export HOST=$SERVER_NAME

