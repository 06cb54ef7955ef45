#!/usr/bin/env bash
# Sets up whatever is not current, then kills a training run's processes at random moments and compares the final digests.
set -euo pipefail
cd "$(dirname "$0")/.."
node tools/setup.mjs --development >&2
exec node dist/dev/test/chaos/main.js "$@"
