#!/bin/sh
# Checks that the engine loads folders that transformers saves, and that transformers and PEFT open folders that the engine exports, with
# the same logits. Run it by hand; it needs Python 3.10 or newer and a package index.
#
#     native/tools/check_export.sh ENGINE [VENV]
#
# ENGINE is the program (bin/longhaul-engine of a build). VENV is a folder for the installed packages; it is created if it is missing.
set -eu
engine=${1:?"usage: check_export.sh ENGINE [VENV]"}
venv=${2:-${TMPDIR:-/tmp}/longhaul-export-check}
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import torch, transformers, peft' 2>/dev/null ||
  "$venv/bin/pip" install --quiet torch==2.15.0 transformers==5.23.0 peft==0.21.0
exec "$venv/bin/python" "$here/transformers_check.py" "$engine"
