# Two RDMA devices of kind $DEVICE, near0 and far0, at the two ends of a cable: the client's is 10.9.0.1, the server's
# 10.9.0.2. Both ends are this machine's, so what goes from one to the other is kept from the short way by routing
# rules.
export HOST=10.9.0.2 NEAR=10.9.0.1
sysctl() { echo "$2" >"/proc/sys/net/ipv4/conf/$1"; }
pair() {
    rdma link delete "${DEVICE}0"
    ip link add near type veth peer name far
    for end in all near far; do sysctl $end/accept_local 1; sysctl $end/rp_filter 0; done
    for end in near far; do sysctl $end/arp_ignore 1; done
    ip addr add $NEAR/24 dev near; ip addr add $HOST/24 dev far
    ip rule add pref 1 iif near lookup local; ip rule add pref 1 iif far lookup local
    ip rule add pref 2 to $HOST lookup 100; ip rule add pref 2 to $NEAR lookup 101
    ip rule add pref 3 lookup local; ip rule del pref 0
    up near; up far
    rdma link add near0 type $DEVICE netdev near
    rdma link add far0 type $DEVICE netdev far
}
# up END: the interface and the way over it, which goes with it.
up() {
    ip link set "$1" up
    case $1 in
    near) ip route replace $HOST/32 dev near src $NEAR table 100;;
    far) ip route replace $NEAR/32 dev far src $HOST table 101;;
    esac
}
# silence: what either end sends reaches nobody, and neither is told. sound: it does again.
silence() { ip neigh replace $HOST lladdr 02:00:00:00:00:01 nud permanent dev near; ip neigh replace $NEAR lladdr 02:00:00:00:00:01 nud permanent dev far; }
sound() { ip neigh del $HOST dev near; ip neigh del $NEAR dev far; }
