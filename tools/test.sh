#!/usr/bin/env bash
# Sets up whatever is not current, the S3 test server included, then runs all checks. Arguments go to vitest.
set -euo pipefail
cd "$(dirname "$0")/.."
node tools/setup.mjs --tests
exec node tools/test.mjs "$@"
