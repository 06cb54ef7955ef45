#!/usr/bin/env bash
# Updates the set-up, then disturbs training runs with faults and compares them with an undisturbed run.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/steps/set-up.sh
set_up --development >&2
# If versitygw is missing, the faults of an S3 service are left out, and the verdict says so.
set_up --only versitygw >&2 || true
exec node dist/dev/test/chaos/main.js "$@"
