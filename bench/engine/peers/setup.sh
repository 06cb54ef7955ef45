#!/usr/bin/env bash
# Installs PyTorch and transformers into a virtual environment of their own, where they are not there yet, and prints its python.
# setup.sh [FOLDER]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../../.longhaul/engine-peers}
if ! cmp -s "$here/requirements.txt" "$folder/installed.txt"; then
  python3 -m venv "$folder" >&2
  # Pip's own settings say where from; a build of PyTorch for the CPU alone is enough, and used where an index has it.
  "$folder/bin/pip" install --quiet --requirement "$here/requirements.txt" >&2
  cp "$here/requirements.txt" "$folder/installed.txt"
fi
echo "$folder/bin/python"
