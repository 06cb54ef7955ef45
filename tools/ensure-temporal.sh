#!/usr/bin/env bash
# Fetches or builds the Temporal server into the cache and notes its path in dist/temporal-path.
set -euo pipefail
exec node "$(dirname "$0")/setup.mjs" --only temporal
