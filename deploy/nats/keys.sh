#!/usr/bin/env bash
# Makes what it takes to try the configurations of this directory: a CA, one
# certificate for the servers, an nkey for each role, and the environment of
# three servers on this machine.
#
#   deploy/nats/keys.sh DIRECTORY [HOST...]
#
# HOSTs are the names and addresses that the servers are asked by, beside
# localhost. For a fleet that matters, use the CA that you have, make each role's
# key where it is used, and give every server a certificate of its own.
#
# It needs openssl and go. A directory that holds keys already is left alone.
set -euo pipefail
umask 077

dir=${1:?which directory? usage: deploy/nats/keys.sh DIRECTORY [HOST...]}
shift
repo=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
if [[ -e $dir/nats.env ]]; then
  echo "$dir/nats.env is there already; nothing was changed" >&2
  exit 1
fi

names=DNS:localhost,IP:127.0.0.1
for host in "$@"; do
  if [[ $host =~ ^[0-9.]+$ || $host == *:* ]]; then names+=,IP:$host; else names+=,DNS:$host; fi
done

# openssl talks while all goes well; its errors are kept for when it does not.
quiet() { local out; out=$("$@" 2>&1) || { echo "$out" >&2; return 1; }; }
quiet openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 \
  -subj '/CN=Toolfleet trial CA' -keyout "$dir/ca.key" -out "$dir/ca.pem"
quiet openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
  -subj '/CN=Toolfleet trial NATS' -keyout "$dir/server.key" -out "$dir/server.csr"
printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$names" >"$dir/server.ext"
quiet openssl x509 -req -days 365 -in "$dir/server.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" \
  -CAcreateserial -extfile "$dir/server.ext" -out "$dir/server.pem"
rm -f "$dir"/server.{csr,ext} "$dir"/ca.srl

# The seed goes to a file of its own; the public key is what servers know.
(cd "$repo" && go build -o "$dir/nk" github.com/nats-io/nkeys/nk)
{
  echo "NATS_CA=$dir/ca.pem"
  echo "NATS_CERT=$dir/server.pem"
  echo "NATS_KEY=$dir/server.key"
  for role in dispatcher worker follower operator; do
    "$dir/nk" -gen user >"$dir/$role.nk"
    echo "TOOLFLEET_${role^^}=$("$dir/nk" -inkey "$dir/$role.nk" -pubout)"
  done
} >"$dir/nats.env.new"
rm "$dir/nk"

for n in 1 2 3; do
  mkdir -p "$dir/store-$n"
  {
    echo "NATS_NAME=node-$n"
    echo "NATS_HOST=127.0.0.1"
    echo "NATS_PORT=$((4221 + n))"
    echo "NATS_STORE=$dir/store-$n"
    echo "NATS_CLUSTER_PORT=$((6221 + n))"
    echo "NATS_HEALTH=127.0.0.1:$((8221 + n))"
    for route in 1 2 3; do echo "NATS_ROUTE_$route=nats-route://127.0.0.1:$((6221 + route))"; done
  } >"$dir/node-$n.env"
done
mv "$dir/nats.env.new" "$dir/nats.env" # last, so that it says that all is there
echo "keys and environments are in $dir"
