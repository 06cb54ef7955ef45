#!/usr/bin/env bash
# Sets up whatever is not current, the S3 test server included, then runs the checks; with --all the slow ones, too.
# With --all and LONGHAUL_TEST_SANITIZERS=1 also the engine's tests under sanitizers and its fuzzers. Other arguments go to vitest.
set -euo pipefail
cd "$(dirname "$0")/.."
sanitizers=()
if [ "${1:-}" = --all ] && [ "${LONGHAUL_TEST_SANITIZERS:-}" = 1 ]; then sanitizers=(--sanitizers); fi
node tools/setup.mjs --tests "${sanitizers[@]}"
exec node tools/test.mjs "$@"
