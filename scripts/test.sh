#!/usr/bin/env bash
# Builds everything and runs every test. Exit code 0: all passed.
#   scripts/test.sh           release build and all its tests, sanitizer build and its tests, thread-safety analysis
#   scripts/test.sh --quick   release build and the quick tests only (under 3 minutes when built)
#   scripts/test.sh --long    all, and ThreadSanitizer, fuzzing, more rounds and seeds (hours)
# Results and logs: build/test-logs. Repeat one test: see docs/testing.md.
set -uo pipefail
. "$(dirname "$0")/lib.sh"

mode=full
case "${1:-}" in
  '') ;;
  --quick) mode=quick ;;
  --long) mode=long ;;
  *) fail "unknown argument '$1'" "usage: scripts/test.sh [--quick|--long]" ;;
esac

logs=$ARCHIL_ROOT/build/test-logs
mkdir -p "$logs"
passed=0
failed=0
troubles=()

# trouble TEXT: something failed that no test counts.
trouble() {
  troubles+=("$1")
  failed=$((failed + 1))
}

# run_tests PRESET CTEST-ARGUMENT…: shows the output of failing tests, adds to the counts.
run_tests() {
  local preset=$1 log=$logs/ctest-$1.log summary total bad
  shift
  say "tests of build/$preset"
  (cd "$ARCHIL_ROOT/build/$preset" && ctest --output-on-failure --no-tests=error -j2 "$@") 2>&1 | tee "$log"
  local code=${PIPESTATUS[0]}
  # "98% tests passed, 1 tests failed out of 57"
  summary=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests failed out of [0-9]+' "$log" | tail -n 1)
  total=$(sed -E 's/.* out of ([0-9]+).*/\1/' <<<"$summary")
  bad=$(sed -E 's/.*passed, ([0-9]+) tests failed.*/\1/' <<<"$summary")
  if [ -z "$summary" ]; then
    trouble "ctest of build/$preset ran no test (exit code $code)"
  else
    passed=$((passed + total - bad))
    failed=$((failed + bad))
    [ "$code" -eq 0 ] || [ "$bad" -gt 0 ] || trouble "ctest of build/$preset ended with exit code $code"
  fi
}

# build_preset PRESET [TARGET…]: false if it cannot be built.
build_preset() {
  say "building build/$1 (log: build/test-logs/build-$1.log)"
  if ! quietly "$logs/configure-$1.log" configure "$1" || ! quietly "$logs/build-$1.log" build "$@"; then
    trouble "build/$1 does not build"
    return 1
  fi
}

finish() {
  local text
  for text in ${troubles[@]+"${troubles[@]}"}; do
    printf 'FAILED: %s\n' "$text"
  done
  say "finished ($mode)"
  printf '%d passed, %d failed\n' "$passed" "$failed"
  [ "$failed" -eq 0 ]
  exit
}

"$ARCHIL_ROOT/scripts/deps.sh" --tests || fail "the packages that the tests need are not there"

if [ "$mode" = quick ]; then
  build_preset release && run_tests release -L quick
  finish
fi

exclude=long
if [ "$mode" = long ]; then
  export ARCHIL_TEST_LONG=1
  exclude='^$'
fi

build_preset release && run_tests release -LE "$exclude"
build_preset asan && run_tests asan -LE 'slow|long|e2e'

say "thread-safety analysis"
if [ -e "$ARCHIL_ROOT/build/release/compile_commands.json" ]; then
  if "$ARCHIL_ROOT/scripts/thread_safety.py" "$ARCHIL_ROOT/build/release/compile_commands.json"; then
    passed=$((passed + 1))
  else
    trouble "thread-safety analysis found something"
  fi
else
  trouble "no compile commands to analyse"
fi

if [ "$mode" = long ]; then
  build_preset tsan && run_tests tsan -LE 'e2e'
  if "$ARCHIL_ROOT/scripts/fuzz.sh"; then
    passed=$((passed + 1))
  else
    trouble "fuzzing found something"
  fi
fi
finish
