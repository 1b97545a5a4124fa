#!/bin/bash
# build-guest.sh CACHE KERNEL
#
# Makes CACHE/linux-VERSION/{vmlinuz,initramfs.cpio}: a Debian kernel and an initramfs with what an NFS/RDMA client or
# server over soft-iWARP needs. KERNEL is a version or its beginning, such as 6.12 or 6.12.117+deb12; the newest that
# fits is taken, of what lies in CACHE if something fits there, else of what apt offers.
# Prints the folder on standard output, what it does on standard error. Each step is kept, so a second run does only what
# is missing. Nothing is installed: all packages are downloaded and unpacked below CACHE. Root is not needed.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=$1 KERNEL=${2%-amd64}
PATH=$PATH:/usr/sbin:/sbin
say() { echo "$*" >&2; }
die() { say "$*"; exit 1; }

# What the guest needs of Debian besides the kernel; the libraries that these depend on come along.
PROGRAMS="bash busybox-static kmod coreutils diffutils findutils util-linux mount iproute2 netbase nfs-common nfs-kernel-server rpcbind strace acl attr nfs4-acl-tools ibverbs-providers librdmacm1
 krb5-user keyutils libgssapi-krb5-2"
# The modules that the guest may load, with what they need.
MODULES="rpcrdma nfs nfsv2 nfsv3 nfsv4 nfs_layout_nfsv41_files nfsd nfs_acl lockd auth_rpcgss rdma_rxe rdma_ucm rdma_cm iw_cm ib_uverbs 9p 9pnet_virtio
 virtio_pci virtio_net virtio_rng veth crc32c_generic crc32c-intel crc32_generic libcrc32c
 rpcsec_gss_krb5 cts cbc ecb hmac cmac authenc aes_generic sha1_generic sha256_generic sha512_generic"

mkdir -p "$CACHE"
CACHE=$(cd "$CACHE" && pwd)
exec 9>"$CACHE/.lock"
flock 9

# ---- which kernel: 6.1 is not the beginning of 6.12
pattern=$(sed 's/[.+]/\\&/g' <<<"$KERNEL")'([^0-9]|$)'
version=$(cd "$CACHE" && find . -maxdepth 1 -name 'linux-*' | sed 's/^.*linux-//' | { grep -E "^$pattern" || true; } | sort -V | tail -1)
if [ -z "$version" ]; then
    offered() {
        apt-cache search --names-only '^linux-headers-[0-9].*-amd64$' | awk '{print $1}' | grep -E '^linux-headers-[0-9]+\.[0-9]+\.[0-9]+' |
            grep -vE -- '-(rt|cloud)-amd64$' | sed 's/^linux-headers-//; s/-amd64$//' | grep -E "^$pattern" | sort -V | tail -1 || true
    }
    version=$(offered)
    if [ -z "$version" ] && [ "$(id -u)" = 0 ]; then
        # A fresh machine may have no lists of packages at all.
        apt-get -q update >/dev/null 2>&1 || true
        version=$(offered)
    fi
    [ -n "$version" ] || die "apt offers no package linux-headers-$KERNEL*-amd64: is Debian's security or backports suite in /etc/apt, and did 'apt-get update' run?"
fi
SERIES=$(echo "$version" | grep -oE '^[0-9]+\.[0-9]+')
DIR=$CACHE/linux-$version
KVER=$version-amd64
mkdir -p "$DIR/kernel" "$DIR/siw" "$DIR/system"
cd "$DIR"
download() { # download PACKAGE[=VERSION]...: .deb files into the current folder
    nice apt-get -q download "$@" >"$DIR/download.log" 2>&1 || { tail -5 "$DIR/download.log" >&2; die "could not download $*"; }
}

# ---- kernel image and modules
if [ ! -e kernel/.done ]; then
    say "downloading linux $version"
    rm -rf kernel && mkdir kernel && cd kernel
    of=$(apt-cache show "linux-headers-$KVER" | awk '/^Version:/ { print $2; exit }')
    image=linux-image-$KVER-unsigned
    apt-cache show "$image" >/dev/null 2>&1 || image=linux-image-$KVER
    download "$image=$of"
    nice dpkg -x ./linux-image-*.deb . && rm -f ./*.deb
    cd .. && cp "kernel/boot/vmlinuz-$KVER" vmlinuz && touch kernel/.done
fi
modules=kernel/usr/lib/modules
[ -d $modules ] || modules=kernel/lib/modules
base=$(dirname "$(dirname "$modules")")

# ---- siw, which Debian does not build
if [ ! -e siw/.done ]; then
    say "building siw for linux $version"
    rm -rf siw && mkdir siw && cd siw
    of=$(apt-cache show "linux-headers-$KVER" | awk '/^Version:/ { print $2; exit }')
    source=linux-source-$SERIES
    if apt-cache madison "$source" | awk '{print $3}' | grep -qxF "$of"; then source=$source=$of
    else say "$source of $of is not offered: siw is built from its newest version"; fi
    # Older kernels share these tools over a whole series.
    kbuild=linux-kbuild-$version
    [ -n "$(apt-cache show "$kbuild" 2>/dev/null)" ] || kbuild=linux-kbuild-$SERIES
    download "linux-headers-$KVER=$of" "linux-headers-$version-common=$of" "$kbuild" "$source"
    for file in ./*.deb; do nice dpkg -x "$file" . && rm -f "$file"; done
    mkdir module
    nice tar -C module --strip-components=5 -xJf usr/src/linux-source-*.tar.xz --wildcards '*/drivers/infiniband/sw/siw/*'
    # The headers refer to one another by absolute paths.
    headers=$PWD/usr/src/linux-headers-$KVER
    sed -i "s#\([ =]\)/usr/src/linux-headers-#\1$PWD/usr/src/linux-headers-#g" "$headers/Makefile"
    for link in scripts tools; do
        for place in "$headers" "$PWD/usr/src/linux-headers-$version-common"; do
            [ ! -L "$place/$link" ] || ln -sfn "$PWD/usr/lib/$kbuild/$link" "$place/$link"
        done
    done
    # The kernel's own compiler where it is installed, else the machine's: siw is content with both.
    compiler=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$headers/include/config/auto.conf")
    command -v "$compiler" >/dev/null || compiler=gcc
    nice make -C "$headers" M="$PWD/module" CC="$compiler" CONFIG_RDMA_SIW=m CONFIG_DEBUG_INFO_BTF_MODULES= modules >build.log 2>&1 ||
        { tail -20 build.log >&2; die "siw could not be built: see $PWD/build.log"; }
    strip --strip-debug -o siw.ko module/siw.ko
    rm -rf usr module
    cd .. && touch siw/.done
fi

# ---- Debian's programs
want=$(sed -n "/^PROGRAMS=/p; /libraries=/,/download/p" "$HERE/build-guest.sh" | cksum)
if [ "$(cat system/.done 2>/dev/null)" != "$want" ]; then
    say "downloading the guest's programs"
    rm -rf system && mkdir system && cd system
    # shellcheck disable=SC2086
    libraries=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances $PROGRAMS |
        grep -E '^(lib[a-z0-9.+-]+|zlib1g)$' | sort -u | grep -vE 'python|perl|installer|elogind')
    # Some of these names are virtual: only packages can be downloaded.
    # shellcheck disable=SC2086
    libraries=$(apt-cache show --no-all-versions $libraries 2>/dev/null | awk '/^Package:/ { print $2 }' | sort -u)
    # shellcheck disable=SC2086
    download $PROGRAMS $libraries
    for file in ./*.deb; do nice dpkg -x "$file" . && rm -f "$file"; done
    rm -rf usr/share
    cd .. && echo "$want" >system/.done
fi

# ---- initramfs
want=$(cat "$HERE/init" "$HERE/build-guest.sh" siw/siw.ko system/.done | cksum)
if [ "$(cat .packed 2>/dev/null)" != "$want" ]; then
    say "packing the guest"
    R=$DIR/initramfs
    rm -rf "$R" && mkdir -p "$R"
    (cd "$R" && mkdir -p dev etc exports job mnt proc root run sys tmp usr/{bin,sbin,lib64,lib/x86_64-linux-gnu} var/lib/nfs/{sm,sm.bak,v4recovery,rpc_pipefs}
        for name in bin sbin lib lib64; do ln -s usr/$name $name; done
        ln -s ../run var/run)
    library() { # library NAME: copies it and what it needs
        [ ! -e "$R/usr/lib/x86_64-linux-gnu/$1" ] || return 0
        local from
        from=$(find -L system -name "$1" -path '*x86_64-linux-gnu*' -type f | head -1)
        [ -n "$from" ] || die "the guest's programs need $1, which no package of the list brings"
        cp -L "$from" "$R/usr/lib/x86_64-linux-gnu/$1"
        needs "$from"
    }
    needs() { # needs FILE: copies the libraries that it names
        local name
        for name in $(readelf -d "$1" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do library "$name"; done
    }
    program() { # program NAME...: copies programs with their libraries
        local name from
        for name; do
            from=$(find system/bin system/sbin system/usr/bin system/usr/sbin -name "$name" 2>/dev/null | head -1)
            [ -n "$from" ] || die "no package of the list brings $name"
            case $from in *sbin/*) cp -L "$from" "$R/sbin/$name";; *) cp -L "$from" "$R/bin/$name";; esac
            needs "$from"
        done
    }
    library ld-linux-x86-64.so.2
    ln -s ../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 "$R/usr/lib64/ld-linux-x86-64.so.2"
    for name in libgcc_s.so.1 libm.so.6 libnss_files.so.2 libpthread.so.0 libdl.so.2; do library $name; done
    # For programs that use RDMA devices: what they load, and the two software devices' parts of it.
    for name in libibverbs.so.1 librdmacm.so.1; do library $name; done
    mkdir -p "$R/etc/libibverbs.d" "$R/usr/lib/x86_64-linux-gnu/libibverbs"
    for name in rxe siw; do
        from=$(find system -name "lib$name-rdmav*.so" -type f | head -1)
        [ -n "$from" ] || die "no package of the list brings the provider of $name"
        cp "$from" "$R/usr/lib/x86_64-linux-gnu/libibverbs/"
        needs "$from"
        cp "system/etc/libibverbs.d/$name.driver" "$R/etc/libibverbs.d/"
    done
    # Kerberos: the library that our server loads, how NFS version 4 names users, and the kernel's questions for both.
    library libgssapi_krb5.so.2
    mkdir -p "$R/usr/lib/x86_64-linux-gnu/libnfsidmap"
    for name in nsswitch static; do
        from=$(find system -path "*libnfsidmap/$name.so" -type f | head -1)
        [ -n "$from" ] || die "no package of the list brings nfsidmap's $name.so"
        cp "$from" "$R/usr/lib/x86_64-linux-gnu/libnfsidmap/"
        needs "$from"
    done
    mkdir -p "$R/etc/request-key.d"
    cp system/etc/request-key.conf "$R/etc/"
    cp system/etc/request-key.d/id_resolver.conf "$R/etc/request-key.d/"
    program bash kmod dmesg mount umount mount.nfs rpcbind rpcinfo exportfs rpc.mountd rpc.nfsd rpc.statd sm-notify showmount nfsstat strace \
        getfattr setfattr getfacl setfacl nfs4_getfacl nfs4_setfacl fallocate rdma ip ss stat dd timeout touch cp ls setpriv rpc.gssd rpc.svcgssd rpc.idmapd nfsidmap request-key keyctl kinit klist kdestroy truncate sha256sum sort seq head tail diff cmp find xargs mkfifo mknod ln mv
    cp system/bin/busybox "$R/bin/busybox"
    for name in $(system/bin/busybox --list); do
        [ -e "$R/bin/$name" ] || [ -e "$R/sbin/$name" ] || ln -s busybox "$R/bin/$name"
    done
    for name in mount.nfs4 umount.nfs umount.nfs4; do ln -sf mount.nfs "$R/sbin/$name"; done
    for name in modprobe insmod rmmod lsmod modinfo; do rm -f "$R/bin/$name"; ln -sf ../bin/kmod "$R/sbin/$name"; done
    for name in netconfig services protocols rpc; do cp system/etc/$name "$R/etc/$name"; done
    printf '%s\n' root:x:0:0:root:/root:/bin/sh _rpc:x:101:65534::/run/rpcbind:/bin/false statd:x:102:65534::/var/lib/nfs:/bin/false \
        anna:x:1000:1000::/tmp:/bin/sh bert:x:1001:1001::/tmp:/bin/sh nobody:x:65534:65534::/:/bin/false >"$R/etc/passwd"
    printf '%s\n' root:x:0: anna:x:1000: bert:x:1001: common:x:2000:anna nogroup:x:65534: >"$R/etc/group"
    for name in passwd group hosts services protocols rpc netgroup networks; do echo "$name: files"; done >"$R/etc/nsswitch.conf"
    printf '127.0.0.1 localhost guest\n10.0.2.2 host\n' >"$R/etc/hosts"
    : >"$R/etc/exports"
    : >"$R/etc/fstab"
    ln -s /proc/mounts "$R/etc/mtab"
    M=$R/lib/modules/$KVER
    mkdir -p "$M/kernel/siw"
    cp "$modules/$KVER"/modules.{order,builtin,builtin.modinfo} "$M/"
    depmod -b "$base" "$KVER"
    for name in $MODULES; do
        modprobe -d "$DIR/$base" -S "$KVER" --show-depends "$name" 2>/dev/null | awk '$1 == "insmod" { print $2 }' || true
    done | sort -u | while read -r file; do
        place=$M/${file#*/lib/modules/"$KVER"/}
        mkdir -p "$(dirname "$place")"
        case $file in *.xz) xz -dc "$file" >"${place%.xz}";; *) cp "$file" "$place";; esac
    done
    cp siw/siw.ko "$M/kernel/siw/"
    depmod -b "$R" "$KVER"
    install -m 755 "$HERE/init" "$R/init"
    # Not compressed: unpacking costs emulated seconds.
    (cd "$R" && find . | cpio -o -H newc --quiet -R 0:0) >initramfs.cpio.new
    mv initramfs.cpio.new initramfs.cpio
    rm -rf "$R"
    echo "$want" >.packed
fi
echo "$DIR"
