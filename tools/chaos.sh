#!/usr/bin/env bash
# Sets up whatever is not current, then brings faults upon training runs and compares them with one that nobody touched.
set -euo pipefail
cd "$(dirname "$0")/.."
node tools/setup.mjs --development >&2
exec node dist/dev/test/chaos/main.js "$@"
