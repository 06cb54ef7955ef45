#!/usr/bin/env bash
# Updates the set-up, including the S3 test server, then runs the checks; with --all also the slow tests, with --nightly only what --all
# leaves out. Other arguments go to vitest.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/steps/set-up.sh
node tools/test-flags.mjs "$@" || {
  code=$?
  [ "$code" -eq 3 ] && exit 0
  exit "$code"
}
sanitizers=()
case " $* " in *" --nightly "*) sanitizers=(--sanitizers) ;; esac
set_up --tests "${sanitizers[@]}"
exec node tools/test.mjs "$@"
