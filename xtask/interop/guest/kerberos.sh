# Kerberos in the guest, before a script that mounts or serves with it: the realm of the host (realm.rs), whose KDC is
# KDC; names for addresses, as nobody else tells them; the kernel's questions for users and tickets. anna and bert have
# tickets once `tickets USER` was said, which `no_tickets USER` takes away.
step live in the realm
cat >/etc/krb5.conf <<END
[libdefaults]
 default_realm = $REALM
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 $REALM = {
  kdc = $KDC
 }
[domain_realm]
 .$DOMAIN = $REALM
END
# Version 4 names users and groups as they are known here: by the domain, which is the realm in lower case.
cat >/etc/idmapd.conf <<END
[General]
Domain = $DOMAIN
Local-Realms = $REALM
[Translation]
Method = nsswitch
[Mapping]
Nobody-User = nobody
Nobody-Group = nogroup
END
# The server is the host, or who is named so below.
SERVER_ADDRESS=${SERVER_ADDRESS:-$HOST}
echo "$SERVER_ADDRESS $SERVER_NAME ${SERVER_NAME%%.*}" >>/etc/hosts
[ "$GUEST" = "${SERVER_NAME%%.*}" ] || echo "${ADDRESS:-10.0.2.15} $GUEST.$DOMAIN $GUEST" >>/etc/hosts
HOST=$SERVER_NAME
cp /job/users.keytab /etc/users.keytab
chmod 644 /etc/users.keytab
mkdir -p /var/tmp
mount -t tmpfs none /var/tmp
modprobe -a auth_rpcgss rpcsec_gss_krb5

# as USER COMMAND...: anna or bert, in no further group here.
as() { local uid; uid=$(id -u "$1"); shift; setpriv --reuid "$uid" --regid "$uid" --clear-groups -- "$@"; }
tickets() { as "$1" kinit -k -t /etc/users.keytab -c "FILE:/tmp/krb5cc_$(id -u "$1")" "$1"; }
no_tickets() { rm -f "/tmp/krb5cc_$(id -u "$1")"; }
# gssd: gets contexts for the kernel's mounts. The machine has a ticket by its own key.
gssd() {
    cp /job/machine.keytab /etc/krb5.keytab
    grep -q rpc_pipefs /proc/mounts || mount -t rpc_pipefs none /var/lib/nfs/rpc_pipefs
    rpc.gssd -f -vv -p /var/lib/nfs/rpc_pipefs >/job/gssd.log 2>&1 &
    GSSD=$!
}
# gss_server: makes contexts for the kernel's server by the server's key, and names the users of version 4 for it.
gss_server() {
    cp /job/server.keytab /etc/krb5.keytab
    rpc.svcgssd -f -vv -p "nfs/$SERVER_NAME@$REALM" >/job/svcgssd.log 2>&1 &
    rpc.idmapd -f -p /var/lib/nfs/rpc_pipefs >/job/idmapd.log 2>&1 &
}
