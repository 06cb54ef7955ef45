"""Writes goldens.json: what Fleet's Python SDK sends, and values as cloudpickle writes them.

Needs fleet-python 0.2.133 (with cloudpickle 3.1.1) on CPython 3.11: python goldens.py > goldens.json
"""

import base64
import hashlib
import json
import sys

import cloudpickle
from fleet.client import _check_bundle_exists, _execute_verifier_remote
from fleet.tasks import verifier_from_string

INSTANCE = "3f2a9c1e-7d44-4c0e-9a51-0b8f6d1e2c33"
CODE = """import json

def validate_task(env, final_answer=None):
    return 1 if final_answer else 0
"""


def built(spec):
    """The value that a description stands for; `built` in goldens.ts does the same."""
    if not isinstance(spec, dict):
        return spec
    if "$repeat" in spec:
        text, times = spec["$repeat"]
        return text * times
    return {key: built(value) for key, value in spec.items()}


def shortened(data):
    """Base64 if it is short, else its sha256."""
    return base64.b64encode(data).decode() if len(data) <= 512 else hashlib.sha256(data).hexdigest()


class Answer:
    def __init__(self, body):
        self.body = body

    def json(self):
        return self.body


class RecordingClient:
    """Answers as Fleet does, and keeps what it was sent."""

    def __init__(self, known):
        self.known = known
        self.requests = []

    def request(self, method, url, json=None):
        self.requests.append({"method": method, "path": url, "body": json})
        if method == "GET":
            return Answer({"success": self.known})
        return Answer({"success": True, "result": 1, "execution_time_ms": 1})


class Env:
    instance_id = INSTANCE

    def __init__(self, client):
        self.client = client

    def check_bundle_exists(self, sha256):
        return _check_bundle_exists(self.client, sha256)

    def execute_verifier_remote(self, **asked):
        return _execute_verifier_remote(self.client, **asked)


def asked_by_sdk(known, answer, runtime):
    client = RecordingClient(known)
    verifier = verifier_from_string(CODE, "verifier-1", "task_a1", verifier_runtime_version=runtime)
    kwargs = {} if answer is None else {"final_answer": built(answer)}
    verifier.remote_with_response(Env(client), **kwargs)
    for request in client.requests:
        # The SDK's zip holds the time at which it was made, and so does its digest.
        request["path"] = request["path"].split("sha256=")[0]
        body = request["body"]
        if body:
            body["sha256"] = "…"
            body["args"] = shortened(base64.b64decode(body["args"]))
            if "bundle" in body:
                body["bundle"] = "…"
        else:
            del request["body"]
    return {"known": known, "answer": answer, "runtime": runtime, "requests": client.requests}


VALUES = [
    None,
    "",
    "é ☃ 😀 \0",
    "\ud800 alone, \udc00 too",
    {"$repeat": ["a", 255]},
    {"$repeat": ["é", 128]},
    {"$repeat": ["a", 65535]},
    {"$repeat": ["a", 65536]},
    {},
    {"one": {}},
]

ANSWERS = [None, "", "It is booked.", "Größe: 12 m² 🏨", {"$repeat": ["long ", 60]}, {"$repeat": ["€", 30000]}]

json.dump(
    {
        "instance": INSTANCE,
        "code": CODE,
        "values": [{"value": spec, "pickle": shortened(cloudpickle.dumps(built(spec)))} for spec in VALUES],
        "asked": [asked_by_sdk(False, answer, "") for answer in ANSWERS]
        + [asked_by_sdk(True, "It is booked.", ""), asked_by_sdk(False, None, "v2")],
    },
    sys.stdout,
    indent=2,
)
