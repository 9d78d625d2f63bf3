#!/usr/bin/env bash
# Proves the images without a container engine: lints the Dockerfiles, carries their build instructions out in clean Debian roots, starts
# what comes out as a container would be started, and makes calls that plugins block. Needs root, and debootstrap.
#
# Clean roots are kept in target/tools/roots, the Rust build shares target/ with the tests.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly SUITE=bookworm
readonly TOOLS=$PWD/target/tools
readonly ROOTS=$TOOLS/roots

[ "$(id -u)" -eq 0 ] || { echo "deploy/check/image.sh has to be run by root: it makes mounts and clean roots" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }

deploy/check/tools.sh

lint() {
    "$TOOLS/deploy/bin/hadolint" --failure-threshold style deploy/Dockerfile examples/python-raw/Dockerfile
    sed -n '/^<!-- story: file Dockerfile -->$/,/^```$/p' docs/sidecar-tutorial.md | sed '1,2d;$d' |
        "$TOOLS/deploy/bin/hadolint" --failure-threshold style -
    # The templates of `hookgate new`.
    for language in python typescript; do
        sed 's|@[A-Z_]*@|/x|g' "cli/src/new/$language/Dockerfile" |
            "$TOOLS/deploy/bin/hadolint" --failure-threshold style -
    done
    # Rust's checkout is a build context, which hadolint takes for an unknown stage.
    sed 's|@[A-Z_]*@|/x|g' cli/src/new/rust/Dockerfile |
        "$TOOLS/deploy/bin/hadolint" --failure-threshold style --ignore DL3022 -
}

# Debian as base images have it, from where this machine gets its packages, plus what the image of that name has.
clean_root() {
    local name=$1 root=$ROOTS/$1
    shift
    [ "$(cat "$root.made" 2>/dev/null)" = "$SUITE $*" ] && return
    local mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' "Codename: $SUITE" 'Origin: Debian' |
        awk '$2 == "main" { print $1; exit }')
    [ -n "$mirror" ] || { echo "this machine's apt has no source for Debian $SUITE" >&2; exit 1; }
    mkdir -p "$ROOTS/packages"
    if [ ! -e "$ROOTS/minbase.made" ]; then
        rm -rf "$ROOTS/minbase"
        debootstrap --variant=minbase --cache-dir="$ROOTS/packages" "$SUITE" "$ROOTS/minbase" "$mirror" >"$ROOTS/minbase.log" ||
            { tail -n 20 "$ROOTS/minbase.log" >&2; exit 1; }
        touch "$ROOTS/minbase.made"
    fi
    rm -rf "$root"
    cp -a "$ROOTS/minbase" "$root"
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    DEBIAN_FRONTEND=noninteractive chroot "$root" sh -c 'apt-get update -q && apt-get install -qy --no-install-recommends "$@" && apt-get clean' \
        sh "$@" >"$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; exit 1; }
    echo "$SUITE $*" >"$root.made"
}

lint
clean_root rust gcc libc6-dev ca-certificates
clean_root python python3 python3-venv python-is-python3 ca-certificates
exec python3 deploy/check/image.py "$ROOTS" target/image
