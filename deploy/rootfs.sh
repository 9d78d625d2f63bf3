#!/bin/sh
# Puts together all that a program needs on a machine that has nothing else: itself, the shared libraries that it is linked to, the
# loader, the CAs that Debian trusts, a user without rights, and a /tmp. What comes out is the whole of the image.
#
#   deploy/rootfs.sh PROGRAM ROOT
set -eu
program=$1 root=$2

mkdir -p "$root/usr/local/bin" "$root/etc/ssl/certs" "$root/tmp"
cp "$program" "$root/usr/local/bin/"

# `ldd` names a library as `libc.so.6 => /lib/.../libc.so.6 (0x...)` and the loader as `/lib64/ld-... (0x...)`: whatever the machine's
# kind, they go where they were found.
libraries=$(ldd "$program" | sed -n 's/^.*[[:space:]]\(\/[^ ]*\) (0x[0-9a-f]*)$/\1/p')
[ -n "$libraries" ] || { echo "ldd names no library of $program" >&2; exit 1; }
for library in $libraries; do
    mkdir -p "$root${library%/*}"
    cp -L "$library" "$root$library"
done

cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
echo 'hookgate:x:65532:65532:hookgate:/:/sbin/nologin' >"$root/etc/passwd"
echo 'hookgate:x:65532:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf" # both are part of glibc itself since 2.34
chmod 1777 "$root/tmp"
