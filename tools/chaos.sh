#!/usr/bin/env bash
# Updates the set-up, then disturbs training runs with faults and compares them with an undisturbed run.
set -euo pipefail
cd "$(dirname "$0")/.."
node tools/setup.mjs --development >&2
# If versitygw is missing, the faults of an S3 service are left out, and the verdict says so.
node tools/setup.mjs --only versitygw >&2 || true
exec node dist/dev/test/chaos/main.js "$@"
