"""Runs verifiers, one JSON line each, on the SDK's environment of local databases."""

import asyncio
import contextlib
import io
import inspect
import json
import os
import re
import sqlite3
import sys
import traceback
import types

import fleet.instance.client
import fleet.resources.sqlite
from fleet import Fleet
from fleet.tasks import verifier_from_string
from fleet.verifiers.local_executor import normalized_string_comparison

client = Fleet(api_key="test-key")
# The SDK's query would wait 5 seconds for a lock; the service's answers at once.
fleet.resources.sqlite.sqlite3 = types.SimpleNamespace(
    connect=lambda path, uri=False: sqlite3.connect(path, uri=uri, timeout=0)
)
# In local mode no request is sent, and a client's certificates would cost 25 ms a verifier.
fleet.instance.client.default_httpx_client = lambda *_: client._httpx_client
# What the SDK offers to the code of a verifier.
helpers = {
    **verifier_from_string("def none(env):\n    return 0\n", "none", "none").func.__globals__,
    "normalized_string_comparison": normalized_string_comparison,
}


def run(job):
    # The scope of a module: a function finds the ones beside it.
    scope = {**helpers, "__name__": "verifier"}
    exec(compile(undecorated(job["code"]), "verifier.py", "exec"), scope)
    function = scope.get(job["function"])
    if not callable(function):
        raise AttributeError(f"module 'verifier' has no attribute '{job['function']}'")
    env = client.instance(job["databases"])
    result = function(env, *job["args"], **job["kwargs"])
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def undecorated(code):
    code = re.sub(r"@verifier\([^)]*\)\s*\n", "", code)
    return re.sub(r"^(from fleet\S* import .*verifier.*|import fleet\S*)$", "", code, flags=re.MULTILINE)


def answer(job):
    printed = io.StringIO()
    result, error = None, None
    with contextlib.redirect_stdout(printed):
        try:
            result = run(job)
            json.dumps(result)
        except Exception as problem:
            result = None
            error = {"type": type(problem).__name__, "message": str(problem), "traceback": traceback.format_exc()}
    return {"success": error is None, "result": result, "error": error, "stdout": printed.getvalue()}


def main():
    replies = os.fdopen(os.dup(1), "w")
    # What a verifier prints from C or from a thread of its own must not look like a reply.
    os.dup2(2, 1)
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=replies, flush=True)


main()
