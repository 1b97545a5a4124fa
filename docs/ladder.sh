#!/bin/sh
# Makes docs/ladder.txt: a file is put and got over RDMA while the client captures, and the captures are drawn; once in
# each version.
# Usage, from the repository's root: sh docs/ladder.sh
set -eu
cargo build --quiet --package rpcrdma-cli
rpcrdma=${CARGO_TARGET_DIR:-target}/debug/rpcrdma
work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -r "$work"' EXIT
mkdir -m 777 "$work/served"
seq 20000 > "$work/numbers"
"$rpcrdma" serve "$work/served" --state "$work/state" --json --listen 127.0.0.1:0 --mountd 127.0.0.1:0 > "$work/ready" &
server=$!
until [ -s "$work/ready" ]; do sleep 0.1; done
port() { sed -n "s/.*\"$1\":\[\"127.0.0.1:\([0-9]*\)\".*/\1/p" "$work/ready"; }
at="nfs://127.0.0.1:$(port rdma)/numbers?version=3&mountport=$(port mountd)"
for version in 2 1; do
    "$rpcrdma" put -q --capture "$work/put-$version.pcapng" "$work/numbers" "$at&rpcrdma=$version"
    "$rpcrdma" get -q --capture "$work/get-$version.pcapng" "$at&rpcrdma=$version" "$work/again"
    cmp "$work/numbers" "$work/again"
    rm "$work/again"
done
{
    echo "Made by: sh docs/ladder.sh"
    for version in 2 1; do
        for command in put get; do
            printf '\n== version %s: rpcrdma %s --capture %s.pcapng ..., then rpcrdma decode --ladder %s.pcapng\n' \
                $version $command $command $command
            "$rpcrdma" decode --ladder "$work/$command-$version.pcapng"
        done
    done
} > docs/ladder.txt
