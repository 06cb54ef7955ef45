#!/usr/bin/env bash
# Updates the set-up, then trains the quickstart policy. With --json, standard output carries only the result. npm adds lines of its own
# to it unless it is silent: `npm run -s quickstart -- --json`.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/steps/set-up.sh
node tools/quickstart-flags.mjs "$@" || {
  code=$?
  [ "$code" -eq 3 ] && exit 0
  exit "$code"
}
set_up >&2
exec node dist/cli/main.js quickstart "$@"
