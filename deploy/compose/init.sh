#!/bin/sh
# Writes .env from .env.example, with a random text of 32 bytes for each value that is empty there. Leaves one that is there alone.
set -eu
umask 077
cd "$(dirname "$0")/../.."

if [ -e .env ]; then
    echo ".env is there already; remove it for new secrets" >&2
    exit 1
fi
while IFS= read -r line; do
    case $line in
    [A-Z]*=) line=$line$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n') ;;
    esac
    printf '%s\n' "$line"
done <.env.example >.env.new
mv .env.new .env
echo "Written: .env. Next: docker compose up --detach --build"
