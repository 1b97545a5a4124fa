# Linux's client and our server over this guest's RDMA device, for the scripts that come after.
step serve
mount -t tmpfs none /tmp -o size=300M,mode=1777
mkdir -p $SERVED/hosts
cd $SERVED/hosts
seq -f "made by the host %.0f" 1 $ENTRIES | xargs -d '\n' touch
cd /
serve
