#!/usr/bin/env bash
# Updates the set-up, then measures the figures and prints each one with its bar.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/steps/set-up.sh
set_up --development >&2
exec node dist/dev/bench/main.js "$@"
