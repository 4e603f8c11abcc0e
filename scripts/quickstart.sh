#!/usr/bin/env bash
# From a fresh Debian 12 to a git clone on a mounted disk, in one command.
#   scripts/quickstart.sh            install what is missing, build, start a server, mount a disk, clone a sample repository
#   scripts/quickstart.sh SOURCE     the same with a git repository of yours: a URL or a path
#   scripts/quickstart.sh --down     unmount and stop the server; the disk's content stays
#   scripts/quickstart.sh --clean    the same, and delete everything that it made outside the tree
# Everything lies below $ARCHIL_QUICKSTART (default: ~/.local/share/archil-quickstart). A second run goes on from what is there.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

home=${ARCHIL_QUICKSTART:-${XDG_DATA_HOME:-$HOME/.local/share}/archil-quickstart}
bin=$ARCHIL_ROOT/build/release/bin
mnt=$home/mnt
disk=quickstart

mounted() { grep -q " $mnt fuse.archil " /proc/self/mounts; }
stale() { mounted && ! timeout 10 stat "$mnt" >/dev/null 2>&1; }
server_pid() {
  local pid
  pid=$(cat "$home/archild.pid" 2>/dev/null) || return 1
  # A number may have been given to another program since.
  [ -n "$pid" ] && [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$(readlink -f "$bin/archild")" ] && echo "$pid"
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# seconds COMMAND…: runs it and prints how long it took; its output goes to the log.
seconds() {
  local label=$1 started ended
  shift
  started=$(date +%s%N)
  quietly "$home/log/step" "$@" || fail "$label did not work" "the server's log: $home/log/archild, the mount's: $home/log/archil"
  ended=$(date +%s%N)
  printf '        %-34s %7s s\n' "$label" "$(awk -v n=$((ended - started)) 'BEGIN { printf "%.2f", n / 1e9 }')"
}

down() {
  local pid waited=0
  if stale; then
    note "the mount at $mnt does not answer; taking it away"
    fusermount3 -uz "$mnt" || fail "could not take away $mnt"
  elif mounted; then
    say "unmounting $mnt"
    "$bin/archil" unmount "$mnt" || fail "could not unmount $mnt" "end what uses it (fuser -m $mnt), then try again, or: $bin/archil unmount --force $mnt"
  fi
  if pid=$(server_pid); then
    say "stopping the server (process $pid)"
    kill -TERM "$pid"
    while kill -0 "$pid" 2>/dev/null; do
      sleep 0.2
      waited=$((waited + 1))
      [ "$waited" -lt 300 ] || fail "the server does not stop" "its log: $home/log/archild; kill -9 $pid ends it at once"
    done
  fi
  rm -f "$home/archild.pid"
}

source_repo=""
case "${1:-}" in
  --down)
    down
    say "stopped; the disk is kept in $home (scripts/quickstart.sh --clean deletes it)"
    exit 0
    ;;
  --clean)
    down
    rm -rf "$home"
    say "stopped and deleted"
    exit 0
    ;;
  -h | --help)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  -*) fail "unknown option '$1'" "see scripts/quickstart.sh --help" ;;
  *) source_repo=${1:-} ;;
esac

say "Archil quickstart: files in $home"
[ -e /dev/fuse ] || fail "there is no /dev/fuse here" "in a container: run it with --device /dev/fuse --cap-add SYS_ADMIN; else: modprobe fuse"
mkdir -p "$home/log" 2>/dev/null || fail "cannot write to $home" "choose another place: ARCHIL_QUICKSTART=/path scripts/quickstart.sh"

"$ARCHIL_ROOT/scripts/deps.sh"
if [ "$(id -u)" -ne 0 ] && ! grep -qs '^user_allow_other' /etc/fuse.conf; then
  note "allowing mounts that other users may see (user_allow_other in /etc/fuse.conf)"
  as_root sh -c 'echo user_allow_other >>/etc/fuse.conf'
fi

say "building (the first time takes ten minutes or so; log: $home/log/build)"
quietly "$home/log/build" configure release || fail "cmake could not configure the build"
quietly "$home/log/build" build release archild archil || fail "the build failed"

# The server of an earlier run goes on, unless the program has been built anew since.
if pid=$(server_pid) && port=$(cat "$home/port" 2>/dev/null) && listening "$port"; then
  say "the server runs already (process $pid, port $port)"
else
  port=${ARCHIL_PORT:-$(cat "$home/port" 2>/dev/null || echo 8100)}
  if listening "$port"; then
    note "port $port is taken by another program"
    while listening "$port"; do port=$((port + 1)); done
  fi
  say "starting the server on 127.0.0.1:$port"
  echo "$port" >"$home/port"
  setsid "$bin/archild" all --dir "$home/server" --listen "127.0.0.1:$port" >>"$home/log/archild" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$home/archild.pid"
  disown
  waited=0
  until listening "$port"; do
    kill -0 "$pid" 2>/dev/null || { tail -n 20 "$home/log/archild" >&2; fail "the server ended at once" "its log: $home/log/archild"; }
    sleep 0.1
    waited=$((waited + 1))
    [ "$waited" -lt 300 ] || fail "the server does not answer after 30 s" "its log: $home/log/archild"
  done
fi
export ARCHIL_SERVER=127.0.0.1:$port

if "$bin/archil" disk show "$disk" >/dev/null 2>&1; then
  say "the disk '$disk' exists already"
else
  say "creating the disk '$disk'"
  "$bin/archil" disk create "$disk" || fail "could not create the disk" "the server's log: $home/log/archild"
fi

if stale; then
  note "a mount of an earlier run does not answer any more; taking it away"
  fusermount3 -uz "$mnt" || as_root umount -l "$mnt"
fi
mkdir -p "$mnt"
if mounted; then
  say "mounted already at $mnt"
else
  say "mounting it at $mnt"
  "$bin/archil" mount "$disk" "$mnt" --log-file "$home/log/archil" || fail "could not mount" "the mount's log: $home/log/archil"
fi

if [ -z "$source_repo" ]; then
  source_repo=$home/sample.git
  name=sample
  old=old new=new
  if [ ! -e "$home/sample.done" ]; then
    say "making a sample repository from files of this machine"
    rm -rf "$source_repo"
    quietly "$home/log/step" "$ARCHIL_ROOT/scripts/sample_repo.py" "$source_repo" || fail "could not make it"
    touch "$home/sample.done"
  fi
else
  name=$(basename "$source_repo" .git)
fi

say "git on the mounted disk"
work=$mnt/$name
export GIT_TERMINAL_PROMPT=0
# What an interrupted run left half made is made anew.
if [ -e "$work" ] && ! git -C "$work" rev-parse --verify -q HEAD >/dev/null 2>&1; then
  note "removing a half-made clone"
  rm -rf "$work"
fi
if [ -e "$work" ]; then
  note "$work is there already"
else
  seconds "git clone" git clone --no-hardlinks "$source_repo" "$work"
fi
if [ -z "${old:-}" ]; then
  new=$(git -C "$work" rev-parse HEAD)
  old=$(git -C "$work" describe --tags --abbrev=0 HEAD~1 2>/dev/null || git -C "$work" rev-list --max-parents=0 HEAD | tail -n 1)
fi
files=$(git -C "$work" ls-files | wc -l)
seconds "git checkout $(printf '%.12s' "$old")" git -C "$work" -c advice.detachedHead=false checkout --quiet "$old"
seconds "git checkout $(printf '%.12s' "$new")" git -C "$work" -c advice.detachedHead=false checkout --quiet "$new"
seconds "git fsck --full" git -C "$work" fsck --full --no-progress
seconds "git status" git -C "$work" status --short
[ -z "$(git -C "$work" status --porcelain)" ] || note "git status shows changes: yours, or a fault worth reporting"
seconds "make it durable (archil sync)" "$bin/archil" sync "$mnt"

say "done: $files files at $work"
cat <<EOT

  What to try next (export ARCHIL_SERVER=$ARCHIL_SERVER first, or pass --server):
    cd $work                       # work in it as in any folder
    $bin/archil status $mnt        # disk, session, what is not yet durable
    $bin/archil metrics $mnt       # how many upcalls and round trips that was
    scripts/quickstart.sh          # again: goes on from here
    scripts/quickstart.sh --down   # unmount and stop; the disk keeps its files
EOT
