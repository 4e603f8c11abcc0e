#!/usr/bin/env bash
# Installs the Debian packages that building and testing need and that are absent. Says nothing and asks nobody
# when all are there.
#   scripts/deps.sh           what building and running need
#   scripts/deps.sh --tests   and what the tests need
set -euo pipefail
. "$(dirname "$0")/lib.sh"

build_packages="g++ cmake ninja-build ccache mold pkg-config git libfuse3-dev fuse3 libgrpc++-dev protobuf-compiler
  protobuf-compiler-grpc libprotobuf-dev librocksdb-dev libabsl-dev libspdlog-dev libfmt-dev libgtest-dev libgmock-dev
  libcurl4-openssl-dev libxxhash-dev python3 ca-certificates"
test_packages="clang-14 libclang-rt-14-dev sqlite3 rsync make gcc dpkg-dev util-linux iproute2 spin"

case "${1:-}" in
  '') packages=$build_packages ;;
  --tests) packages="$build_packages $test_packages" ;;
  *) fail "unknown argument '$1'" "usage: scripts/deps.sh [--tests]" ;;
esac
command -v apt-get >/dev/null 2>&1 || fail "no apt-get here: Archil is built on Debian 12" "install by hand: $(echo $packages)"

missing=""
for package in $packages; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing+=" $package"
done
# Any node and npm on the path will do, wherever they come from.
if [ "${1:-}" = --tests ]; then
  command -v node >/dev/null 2>&1 || missing+=" nodejs"
  command -v npm >/dev/null 2>&1 || missing+=" npm"
fi
[ -n "$missing" ] || exit 0

say "installing$missing"
# Before anything is hidden in a log: this asks for the password, and says what is wrong.
as_root apt-get --version >/dev/null || fail "could not become root" "run this once as root: scripts/deps.sh ${1:-}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
}
# The lists that are here may do; only if not are they fetched.
if ! install >"$log" 2>&1; then
  note "fetching the package lists"
  quietly "$log" as_root apt-get update -qq || fail "apt-get update failed" "is the network there, and are the sources in /etc/apt right?"
  quietly "$log" install || fail "could not install:$missing" "the end of apt's own messages stands above"
fi
