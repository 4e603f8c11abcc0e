#!/usr/bin/env bash
# Runs each fuzz target of tests/fuzz with libFuzzer (clang), some seconds each.
#   scripts/fuzz.sh [SECONDS]     default 60 for each target
# A finding is left as a file in build/fuzz; give it to the target as its argument to repeat it.
set -uo pipefail
. "$(dirname "$0")/lib.sh"

limit=${1:-60}
dir=$ARCHIL_ROOT/build/fuzz
mkdir -p "$dir"
say "building the fuzz targets"
quietly "$dir/configure.log" cmake -S "$ARCHIL_ROOT" -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=clang++-14 \
  -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" -DARCHIL_GRPC=OFF -DARCHIL_SANITIZE=address,undefined -DARCHIL_LIBFUZZER=ON ||
  fail "cmake could not configure the fuzz targets"
quietly "$dir/build.log" cmake --build "$dir" --parallel "$(build_jobs)" --target archil_fuzz_targets || fail "the fuzz targets do not build"

bad=0
found=0
for target in "$dir"/bin/fuzz_*; do
  [ -x "$target" ] || continue
  found=$((found + 1))
  name=$(basename "$target")
  corpus=$dir/corpus/$name
  mkdir -p "$corpus"
  seeds=$ARCHIL_ROOT/tests/fuzz/corpus/$name
  [ -d "$seeds" ] || seeds=""
  say "$name, $limit s"
  if ! (cd "$dir" && "$target" -max_total_time="$limit" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$name-" \
    "$corpus" ${seeds:+"$seeds"}) >"$dir/$name.log" 2>&1; then
    bad=$((bad + 1))
    tail -n 30 "$dir/$name.log"
  else
    grep -E '^stat::number_of_executed_units' "$dir/$name.log" | sed 's/^/        /'
  fi
done
[ "$found" -gt 0 ] || fail "no fuzz target was built"
say "$found targets, $bad with findings"
[ "$bad" -eq 0 ]
