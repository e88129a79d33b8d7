# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Sourced after scripts/lib.sh: roots of Debian's releases, and programs in them. Only root can make one, with mmdebstrap
# and a mirror of Debian. Those for the tests are made once, in the cache folder.

# Debian 13 with all that make check and the mounts need, and a user named newcomer.
trixie_root=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/debian-13
trixie_packages=("${build_packages[@]}" acl openssl passwd python3 python3-numpy python3-venv strace)
# The libraries for aarch64 below ours, of the release that has the cross compiler, as files in "root", and an emulator.
arm64_root=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/debian-12-arm64
arm64_packages=(libc6-dev libgcc-s1 libxxhash-dev libprotobuf-c-dev libcjson-dev zlib1g-dev libzstd-dev libssl-dev
    libcurl4-openssl-dev libfuse3-dev libseccomp-dev libcmocka-dev)
# The loader is called by its path: with -L the emulator would look up all paths in that root first, also "/".
# shellcheck disable=SC2034 # used by those who source this
arm64_emulator=("$arm64_root/qemu-aarch64" "$arm64_root/root/lib/ld-linux-aarch64.so.1" --library-path
    "$arm64_root/root/lib/aarch64-linux-gnu:$arm64_root/root/usr/lib/aarch64-linux-gnu")
# A whole machine of aarch64 to emulate: a disk with the release that has those libraries, and what tests of mounts use;
# and two kernels of Debian 13, with pages of 4 and of 16 KiB, with the modules that they need for a disk.
arm64_system=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/debian-12-arm64-system
arm64_system_packages=(acl busybox-static fuse3 gcc libc6-dev libcjson1 libcurl4 libprotobuf-c1 libseccomp2 libxxhash0 mount
    openssl procps python3 python3-numpy strace)
arm64_kernels=(linux-image-arm64 linux-image-arm64-16k)
arm64_disk_modules=(crc16 mbcache jbd2 crc32c_generic ext4 virtio_blk) # in the order in which they are loaded

# debian_mirror: the first of this machine's that has Debian itself
debian_mirror() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
        grep -oP '^(URIs:\s*|deb (\[[^]]*\] )?)\Khttp\S+/debian/?(?=\s|$)' | head -n 1
}

# lacks_root FOLDER RELEASE: it is not there, and no mirror has the release
lacks_root() {
    local answer status=0

    [ ! -e "$1/complete" ] || return 1
    answer=$(mktemp) || return 1
    /usr/lib/apt/apt-helper download-file "$(debian_mirror)/dists/$2/InRelease" "$answer" >/dev/null 2>&1 || status=$?
    rm -f "$answer"
    [ "$status" != 0 ]
}

# fill_root FOLDER RELEASE [OPTION...]: the release in an empty folder. Options are those of mmdebstrap. What it mounts there
# is in a namespace of its own, so that nothing is left mounted if it is killed.
fill_root() {
    local folder=$1 release=$2 mirror
    shift 2
    mirror=$(debian_mirror)
    unshare --mount --propagation private mmdebstrap --quiet --variant=apt "$@" "$release" "$folder" \
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main"
}

# furnish_root FOLDER: what a running system has besides files. The mounts are in the caller's namespace.
furnish_root() {
    local root=$1 device major minor

    mount -t proc proc "$root/proc" && mount -t sysfs sys "$root/sys" &&
        mount -t tmpfs -o mode=755 dev "$root/dev" && mkdir "$root/dev/pts" "$root/dev/shm" &&
        mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 pts "$root/dev/pts" &&
        mount -t tmpfs -o mode=1777 shm "$root/dev/shm" || return 1
    for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 fuse:10:229; do
        IFS=: read -r device major minor <<<"$device"
        mknod -m 666 "$root/dev/$device" c "$major" "$minor" || return 1
    done
    { ! [ -d "$root/sys/fs/fuse/connections" ] || mount -t fusectl connections "$root/sys/fs/fuse/connections"; } &&
        ln -s pts/ptmx "$root/dev/ptmx" && ln -s /proc/self/fd "$root/dev/fd" &&
        ln -s /proc/self/fd/0 "$root/dev/stdin" && ln -s /proc/self/fd/1 "$root/dev/stdout" &&
        ln -s /proc/self/fd/2 "$root/dev/stderr" && cp /etc/resolv.conf "$root/etc/" &&
        ln -sf ../proc/self/mounts "$root/etc/mtab" &&
        echo "127.0.0.1 localhost $(hostname)" >"$root/etc/hosts" &&
        { ! [ -d /etc/apt/apt.conf.d ] || cp -rn /etc/apt/apt.conf.d "$root/etc/apt/"; } &&
        { [ -z "${PIP_CERT-}" ] || install -m 644 "$PIP_CERT" "$root/etc/pip-cert.crt"; }
}

# in_root USER FOLDER COMMAND...
in_root() {
    local user=$1 root=$2 home=/root
    shift 2
    [ "$user" = root ] || home=/home/$user
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$home" USER="$user" LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive ${PIP_CERT:+PIP_CERT=/etc/pip-cert.crt} \
        chroot --userspec="$user" "$root" "$@"
}

fill_trixie_root() {
    local names=${trixie_packages[*]}

    fill_root "$1" trixie --include="${names// /,}" && chroot "$1" useradd --uid 64123 --create-home --shell /bin/bash newcomer
}

# Symbolic links in the root are relative ones, as a linker follows them. The emulator is that of Debian 13, a static program.
fill_arm64_root() {
    local names=${arm64_packages[*]} link

    fill_root "$1/qemu" trixie --variant=extract --include=qemu-user && mv "$1/qemu/usr/bin/qemu-aarch64" "$1/" &&
        rm -rf --one-file-system "$1/qemu" &&
        fill_root "$1/root" bookworm --variant=extract --architectures=arm64 --include="${names// /,}" || return 1
    find "$1/root/usr/lib/aarch64-linux-gnu" -lname '/*' | while IFS= read -r link; do
        ln -sfnr "$1/root$(readlink "$link")" "$link" || return 1
    done
}

# keep_arm64_kernel FOLDER IMAGE: as kernel-4 or kernel-16, by the KiB of its pages, with modules-4 or modules-16 beside it
keep_arm64_kernel() {
    local folder=$1 image=$2 kib=4 module path number=10

    [[ $image != *-16k ]] || kib=16
    mv "$image" "$folder/kernel-$kib" && mkdir "$folder/modules-$kib" || return 1
    for module in "${arm64_disk_modules[@]}"; do
        path=$(find "$folder/kernels/usr/lib/modules/${image##*/vmlinuz-}" -name "$module.ko.xz") &&
            xz -dc "$path" >"$folder/modules-$kib/$number-$module.ko" || return 1
        number=$((number + 1))
    done
}

# Nothing in the root is configured, because no program of it can run here: what that would have done for the tests is
# done here. The disk is sparse, with room for the files of tests.
fill_arm64_system() {
    local names=${arm64_kernels[*]} root=$1/root lib=$1/root/usr/lib/aarch64-linux-gnu image

    install_packages e2fsprogs xz-utils &&
        fill_root "$1/kernels" trixie --variant=extract --architectures=arm64 --include="${names// /,}" || return 1
    for image in "$1"/kernels/boot/vmlinuz-*; do
        keep_arm64_kernel "$1" "$image" || return 1
    done
    names=${arm64_system_packages[*]}
    fill_root "$root" bookworm --variant=extract --architectures=arm64 --include='?essential' --include="${names// /,}" &&
        cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd" &&
        cp "$root/usr/share/base-passwd/group.master" "$root/etc/group" &&
        ln -s /proc/self/mounts "$root/etc/mtab" && echo "127.0.0.1 localhost" >"$root/etc/hosts" &&
        ln -s blas/libblas.so.3 lapack/liblapack.so.3 "$lib/" && chmod u+s "$root/bin/fusermount3" &&
        cp "$root/bin/busybox" "$1/" && truncate -s 8G "$1/disk" && mke2fs -q -t ext4 -d "$root" "$1/disk" &&
        rm -rf --one-file-system "$root" "$1/kernels"
}

# make_root FOLDER RELEASE FILL WORD...: none where it can't be made; who needs it says why
make_root() {
    local folder=$1 release=$2 fill=$3
    shift 3

    [ "$(id -u)" = 0 ] || return 0
    ! lacks_root "$folder" "$release" || return 0
    install_packages mmdebstrap && make_venv "$folder" none "Debian's $release with $*" "$fill"
}

# Where nothing can be mounted, or no device made, nobody would use it.
make_trixie_root() {
    ! no_fuse && ! no_devices || return 0
    make_root "$trixie_root" trixie fill_trixie_root "${trixie_packages[@]}"
}

make_arm64_root() {
    make_root "$arm64_root" bookworm fill_arm64_root "${arm64_packages[@]}"
}

make_arm64_system() {
    make_root "$arm64_system" trixie fill_arm64_system "${arm64_kernels[@]}" and Debian 12 with "${arm64_system_packages[@]}"
}
