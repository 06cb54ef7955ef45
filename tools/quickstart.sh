#!/usr/bin/env bash
# Sets up whatever is not current, then trains the quickstart policy. With --json, standard output carries the result alone.
set -euo pipefail
cd "$(dirname "$0")/.."
node tools/setup.mjs >&2
exec node dist/cli/main.js quickstart "$@"
