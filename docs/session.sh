#!/bin/sh
# Makes the recording of a session in README.md: runs the commands that it shows, and writes them there with what they
# print. It needs the release build, and the ports 20049 and 2049 of loopback.
# Usage, from the repository's root: sh docs/session.sh
set -eu
root=$(pwd)
work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -r "$work"' EXIT
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$root/$target ;; esac
PATH=$target/release:$PATH
mkdir -m 777 "$work/shared"
mkdir "$work/photos"
cd "$work"
export XDG_STATE_HOME="$work" XDG_CACHE_HOME="$work"
for number in 1 2 3; do head -c 3000000 /dev/urandom > "photos/$number.jpg"; done

# Runs a line as somebody would type it, and shows it with what it prints.
shown() {
    echo "\$ $1"
    sh -c "$1" 2>&1
}

rpcrdma serve shared --nfs 4.2 --state "$work/state" > ready 2> log &
server=$!
until grep -qs '^list' ready; do sleep 0.1; done
{
    echo '$ rpcrdma serve shared --nfs 4.2 &'
    grep -v '^list' ready
    shown 'rpcrdma put -r photos nfs://127.0.0.1/'
    shown 'rpcrdma ls -lh nfs://127.0.0.1/photos'
    shown 'rpcrdma mv nfs://127.0.0.1/photos/1.jpg nfs://127.0.0.1/photos/first.jpg'
    shown 'rpcrdma get --capture get.pcapng nfs://127.0.0.1/photos/first.jpg copy.jpg'
    shown 'rpcrdma decode --ladder --procedure READ get.pcapng | sed 11q'
    shown 'rpcrdma ping -c 2 nfs://127.0.0.1/'
} > session
cd "$root"
{
    sed '/^<!-- begin: session -->/q' README.md
    printf '\n```text\n'
    cat "$work/session"
    printf '```\n\n'
    sed -n '/^<!-- end: session -->/,$p' README.md
} > "$work/README.md"
cat "$work/README.md" > README.md
