#!/usr/bin/env bash
# Installs PyTorch and transformers in their own virtual environment, unless they are installed there, and prints the path of its python.
# setup.sh [FOLDER]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../../.longhaul/engine-peers}
if ! cmp -s "$here/requirements.txt" "$folder/installed.txt"; then
  python3 -m venv "$folder" >&2
  # Pip's own settings name the index. A CPU-only build of PyTorch is enough; pip uses one if the index has it.
  "$folder/bin/pip" install --quiet --requirement "$here/requirements.txt" >&2
  cp "$here/requirements.txt" "$folder/installed.txt"
fi
echo "$folder/bin/python"
