#!/usr/bin/env bash
# Sets up whatever is not current, then measures the figures and prints them beside their bars.
set -euo pipefail
cd "$(dirname "$0")/.."
node tools/setup.mjs --development >&2
exec node dist/dev/bench/main.js "$@"
