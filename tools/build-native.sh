#!/usr/bin/env bash
# Builds the native engine in the cache and writes its path to dist/engine-path.
set -euo pipefail
exec node "$(dirname "$0")/setup.mjs" --only engine
