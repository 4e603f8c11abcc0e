# What the scripts share: messages, progress, the tree's root, running as root. To be sourced by bash scripts.

ARCHIL_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly ARCHIL_ROOT
ARCHIL_STARTED=$SECONDS

if [ -t 1 ]; then
  _bold=$(printf '\033[1m') _plain=$(printf '\033[0m')
else
  _bold='' _plain=''
fi

# say TEXT: a step begins. note TEXT: a detail. fail TEXT [REMEDY]: ends the script with exit code 1.
say() { printf '%s[%4ds] %s%s\n' "$_bold" $((SECONDS - ARCHIL_STARTED)) "$*" "$_plain"; }
note() { printf '        %s\n' "$*"; }
fail() {
  printf '\n%serror:%s %s\n' "$_bold" "$_plain" "$1" >&2
  [ $# -lt 2 ] || printf '       %s\n' "$2" >&2
  exit 1
}

# as_root COMMAND…: runs it as root, through sudo where needed.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null 2>&1; then
    sudo "$@"
  else
    fail "'$1' must run as root, and there is no sudo" "run this script as root once, or install sudo"
  fi
}

# quietly LOG COMMAND…: output goes to LOG; a dot every 5 s shows life; on failure the log's end is shown.
# Returns the command's exit code.
quietly() {
  local log=$1 started=$SECONDS pid code waited=0
  shift
  "$@" >"$log" 2>&1 &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if [ $((SECONDS - started)) -ge $((waited + 5)) ]; then
      waited=$((SECONDS - started))
      printf '.'
    fi
  done
  [ "$waited" -eq 0 ] || printf ' %ds\n' $((SECONDS - started))
  wait "$pid"
  code=$?
  if [ "$code" -ne 0 ]; then
    printf '\n--- the end of %s ---\n' "$log" >&2
    tail -n 40 "$log" >&2
    printf -- '---\n' >&2
  fi
  return "$code"
}

# How many jobs a build may run: one per core, and at least 1.5 GiB of memory for each.
build_jobs() {
  local cores mem_kib jobs
  cores=$(nproc)
  mem_kib=$(awk '/^MemTotal:/ {print $2}' /proc/meminfo)
  jobs=$((mem_kib / 1572864))
  [ "$jobs" -ge 1 ] || jobs=1
  [ "$jobs" -le "$cores" ] || jobs=$cores
  echo "$jobs"
}

# configure PRESET, build PRESET [TARGET…]: in build/PRESET.
configure() {
  (cd "$ARCHIL_ROOT" && cmake --preset "$1")
}

build() {
  local preset=$1
  shift
  (cd "$ARCHIL_ROOT" && cmake --build "build/$preset" --parallel "$(build_jobs)" ${1:+--target "$@"})
}
