#!/usr/bin/env bash
# Sets up whatever is not current, the S3 test server included, then runs all checks. Arguments go to vitest.
# With LONGHAUL_TEST_SANITIZERS=1, as continuous integration has it, also the engine's tests under sanitizers and its fuzzers.
set -euo pipefail
cd "$(dirname "$0")/.."
sanitizers=()
if [ "${LONGHAUL_TEST_SANITIZERS:-}" = 1 ]; then sanitizers=(--sanitizers); fi
node tools/setup.mjs --tests "${sanitizers[@]}"
exec node tools/test.mjs "$@"
