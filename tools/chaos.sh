#!/usr/bin/env bash
# Sets up whatever is not current, then brings faults upon training runs and compares them with one that nobody touched.
set -euo pipefail
cd "$(dirname "$0")/.."
node tools/setup.mjs --development >&2
# Without it the faults of an S3 service are left out, which the verdict says.
node tools/setup.mjs --only versitygw >&2 || true
exec node dist/dev/test/chaos/main.js "$@"
