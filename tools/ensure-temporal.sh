#!/usr/bin/env bash
# Downloads or builds the Temporal server in the cache and writes its path to dist/temporal-path.
set -euo pipefail
exec node "$(dirname "$0")/setup.mjs" --only temporal
