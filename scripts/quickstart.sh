#!/usr/bin/env bash
# From a fresh Debian 12 to a git clone on a mounted disk, in one command.
#   scripts/quickstart.sh            install what is missing, build, start a server, mount a disk, clone a sample repository
#   scripts/quickstart.sh SOURCE     the same with a git repository of yours: a URL or a path
#   scripts/quickstart.sh --down     unmount and stop the server; the disk's content stays
#   scripts/quickstart.sh --clean    the same, and delete everything that it made outside the tree
# Everything lies below $ARCHIL_QUICKSTART (default: ~/.local/share/archil-quickstart). A second run goes on from what is there.
# $ARCHIL_PORT: the server's port (default 8100, or the next free one). $ARCHIL_BIN: a directory with archild and archil that
# are built already; then nothing is installed and nothing is built.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

home=${ARCHIL_QUICKSTART:-${XDG_DATA_HOME:-$HOME/.local/share}/archil-quickstart}
home=$(realpath -m "$home")  # as the kernel's list of mounts names it
bin=${ARCHIL_BIN:-$ARCHIL_ROOT/build/release/bin}
mnt=$home/mnt
disk=quickstart

mounted() { grep -qF " ${mnt// /\\040} fuse.archil " /proc/self/mounts; }
# The mount is there and its daemon is not. Not plain stat, which the kernel may answer from what it remembers.
stale() {
  local answer
  mounted || return 1
  answer=$(LC_ALL=C timeout 10 stat -f "$mnt" 2>&1) && return 1
  [[ $answer == *'endpoint is not connected'* || $answer == *'connection abort'* ]]
}
take_away() {
  note "the daemon of $mnt has died; taking the mount away"
  fusermount3 -uz "$mnt" 2>/dev/null || as_root umount -l "$mnt" || fail "could not take away $mnt"
}
server_pid() {
  local pid
  pid=$(cat "$home/archild.pid" 2>/dev/null) || return 1
  # A number may have been given to another program since.
  [ -n "$pid" ] && tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF " all --dir $home/server " && echo "$pid"
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# seconds LABEL COMMAND…: runs it and prints how long it took; its output goes to the log.
seconds() {
  local label=$1 started
  shift
  started=$(date +%s%N)
  quietly "$home/log/step" timed "$@" || fail "$label did not work" "the server's log: $home/log/archild, the mount's: $home/log/archil"
  printf '        %-34s %7s s\n' "$label" "$(awk -v n=$(($(cat "$home/log/ended") - started)) 'BEGIN { printf "%.2f", n / 1e9 }')"
}

timed() {
  local code=0
  "$@" || code=$?
  date +%s%N >"$home/log/ended"
  return $code
}

down() {
  local pid waited=0
  if stale; then
    take_away
  elif mounted; then
    say "unmounting $mnt"
    "$bin/archil" unmount "$mnt" || fail "could not unmount $mnt" "end what uses it, then try again, or: $bin/archil unmount --force $mnt"
  fi
  if pid=$(server_pid); then
    say "stopping the server (process $pid)"
    kill -TERM "$pid"
    # Not kill -0: where nobody collects the dead (a container without an init), they keep their numbers.
    while server_pid >/dev/null; do
      sleep 0.2
      waited=$((waited + 1))
      [ "$waited" -lt 300 ] || fail "the server does not stop" "its log: $home/log/archild; kill -9 $pid ends it at once"
    done
  fi
  rm -f "$home/archild.pid"
}

source_repo=""
[ $# -le 1 ] || fail "one argument at most" "see scripts/quickstart.sh --help"
case "${1:-}" in
  --down)
    down
    say "stopped; the disk is kept in $home (scripts/quickstart.sh --clean deletes it)"
    exit 0
    ;;
  --clean)
    down
    # Not all of $home: it may have been there before.
    rm -rf "$home/server" "$home/log" "$home/sample.git"
    rm -f "$home/port" "$home/sample.done"
    rmdir "$mnt" "$home" 2>/dev/null || true
    say "stopped and deleted"
    exit 0
    ;;
  -h | --help)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  -*) fail "unknown option '$1'" "see scripts/quickstart.sh --help" ;;
  *) source_repo=${1:-} ;;
esac

say "Archil quickstart: files in $home"
[ -e /dev/fuse ] || fail "there is no /dev/fuse here" "in a container: run it with --device /dev/fuse --cap-add SYS_ADMIN; else: modprobe fuse"
mkdir -p "$home/log" 2>/dev/null || fail "cannot write to $home" "choose another place: ARCHIL_QUICKSTART=/path scripts/quickstart.sh"

[ -n "${ARCHIL_BIN:-}" ] || "$ARCHIL_ROOT/scripts/deps.sh"
if [ "$(id -u)" -ne 0 ]; then
  if ! grep -qs '^user_allow_other' /etc/fuse.conf; then
    note "allowing mounts that other users may see (user_allow_other in /etc/fuse.conf)"
    as_root sh -c 'echo user_allow_other >>/etc/fuse.conf' || fail "could not write to /etc/fuse.conf"
  fi
  if [ ! -e /etc/mtab ]; then  # as in a bare chroot; fusermount3 would mount and not unmount
    note "linking /etc/mtab to /proc/self/mounts, which fusermount3 reads"
    as_root ln -sf ../proc/self/mounts /etc/mtab || fail "could not make /etc/mtab"
  fi
fi

if [ -n "${ARCHIL_BIN:-}" ]; then
  [ -x "$bin/archild" ] && [ -x "$bin/archil" ] || fail "no archild and archil in $bin" "ARCHIL_BIN names the directory that holds them; without it they are built"
else
  say "building (the first time takes ten minutes or so; log: $home/log/build)"
  quietly "$home/log/configure" configure release || fail "cmake could not configure the build"
  quietly "$home/log/build" build release archild archil || fail "the build failed"
fi

if pid=$(server_pid) && [ "$(readlink "/proc/$pid/exe")" != "$(realpath -m "$bin/archild")" ]; then
  note "what runs here is of another build"
  down
fi
if pid=$(server_pid) && port=$(cat "$home/port" 2>/dev/null) && listening "$port"; then
  say "the server runs already (process $pid, port $port)"
else
  port=$(cat "$home/port" 2>/dev/null || echo 8100)
  if mounted && ! stale; then
    ! listening "$port" || fail "port $port, where the mount at $mnt looks for its server, is taken by another program" \
      "end that program, or give up what the mount has not flushed: $bin/archil unmount --force $mnt"
  else
    port=${ARCHIL_PORT:-$port}
    ! listening "$port" || note "port $port is taken by another program"
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

! stale || take_away
mkdir -p "$mnt"
if mounted; then
  say "mounted already at $mnt"
else
  say "mounting it at $mnt"
  "$bin/archil" mount "$disk" "$mnt" --log-file "$home/log/archil" || fail "could not mount" "the mount's log: $home/log/archil"
fi

if [ ! -w "$mnt" ]; then
  note "a new disk belongs to root; it becomes yours"
  as_root chown "$(id -u):$(id -g)" "$mnt" || fail "could not become the owner of $mnt"
fi

if [ -z "$source_repo" ]; then
  source_repo=$home/sample.git
  name=sample
  old=old
  if [ ! -e "$home/sample.done" ]; then
    say "making a sample repository from files of this machine"
    rm -rf "$source_repo"
    quietly "$home/log/step" "$ARCHIL_ROOT/scripts/sample_repo.py" "$source_repo" || fail "could not make it"
    touch "$home/sample.done"
  fi
else
  [ ! -e "$source_repo" ] || source_repo=$(realpath "$source_repo")
  name=$(basename "$source_repo" .git)
fi

say "git on the mounted disk"
work=$mnt/$name
part=$mnt/.quickstart.part  # becomes $work when it is complete
export GIT_TERMINAL_PROMPT=0
if [ -e "$work" ]; then
  note "$work is there already"
  git -C "$work" rev-parse --verify -q HEAD >/dev/null 2>&1 || fail "$work is no git repository with a commit" "move it away, then try again"
else
  rm -rf "$part"
  seconds "git clone" git clone --no-hardlinks "$source_repo" "$part"
  git -C "$part" rev-parse --verify -q HEAD >/dev/null || fail "$source_repo has no commit" "choose a repository that has one"
  new=$(git -C "$part" symbolic-ref --short -q HEAD || git -C "$part" rev-parse HEAD)
  if [ -z "${old:-}" ]; then
    old=$(git -C "$part" describe --tags --abbrev=0 HEAD~1 2>/dev/null || git -C "$part" rev-list --max-parents=0 HEAD | tail -n 1)
  fi
  seconds "git checkout $(printf '%.12s' "$old")" git -C "$part" -c advice.detachedHead=false checkout --quiet "$old"
  seconds "git checkout $(printf '%.12s' "$new")" git -C "$part" -c advice.detachedHead=false checkout --quiet "$new"
  mv "$part" "$work"
fi
files=$(git -C "$work" ls-files | wc -l)
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
