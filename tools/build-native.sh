#!/usr/bin/env bash
# Builds the native engine into the cache and notes its path in dist/engine-path.
set -euo pipefail
exec node "$(dirname "$0")/setup.mjs" --only engine
