"""Sends points to Weights & Biases through its own client.

Reads one JSON request per line from standard input, and answers each with one JSON line on standard output:

    {"op": "open", "run": ..., "project": ..., "entity": ..., "name": ..., "folder": ..., "mode": ..., "config": {...}}
        -> {"ok": true, "ids": [...], "next": n}      the points that W&B holds: a row's step is its index in this list
    {"op": "log", "rows": [{"id": ..., "at": seconds, "values": {...}}, ...]}
        -> {"ok": true, "next": n}
    {"op": "close"}
        -> {"ok": true, "next": n}                    all points are uploaded, or, if offline, on this machine's disk

A failure answers {"ok": false, "refused": bool, "error": ...}: refused means that a person must fix it. When standard input ends,
so does the program, after at most as many seconds as its only argument says. Each row has an explicit step, one more than the row
before, so that no row is dropped or repeated.
"""

import contextlib
import fcntl
import json
import os
import signal
import struct
import sys
import threading
import time
import zlib
from pathlib import Path

# If a bridge is killed, W&B's own process may live on and write: it still holds the lock on the log, its standard error.
# These waits must end before the parent process stops waiting for `open`: it would kill this process and start again.
LOCK_WAIT_S = 30
KILLED_WAIT_S = 10
INIT_WAIT_S = 60
MARK = "LONGHAUL_WANDB_FOLDER"
# Block size and record types of W&B's transaction log.
BLOCK_BYTES = 32768
FULL, FIRST, LAST = 1, 2, 4
ID_KEY = "longhaul/point"
STEP_KEY = "trainer/global_step"
INSTALL = "install it for this Python: %s -m pip install wandb" % sys.executable


class Refused(Exception):
    """A problem that lasts until a person fixes it."""


class Bridge:
    def __init__(self):
        self.run = None
        self.mode = "online"
        self.journal = None
        self.next = 0

    def open(self, request):
        folder = Path(request["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        take_over(folder)
        wandb = import_wandb()
        self.mode = request["mode"]
        journal = folder / "sent.jsonl"
        run_id = request["run"]
        self.run = wandb.init(
            project=request["project"],
            entity=request.get("entity"),
            id=run_id,
            name=request.get("name"),
            dir=str(folder),
            mode=self.mode,
            resume="allow",
            config=request.get("config") or {},
            settings=settings(wandb),
        )
        if self.mode == "offline":
            ids = offline_ids(folder, run_id)
        else:
            ids = online_ids(wandb, self.run, read_journal(journal))
        self.next = len(ids)
        self.run.define_metric(STEP_KEY)
        self.run.define_metric("*", step_metric=STEP_KEY)
        # Rows that were sent but did not arrive are sent again, with the same steps.
        write_journal(journal, ids)
        self.journal = journal.open("a", encoding="utf-8")
        return {"ids": ids, "next": self.next}

    def log(self, request):
        if self.run is None:
            raise RuntimeError("open comes before log")
        for row in request["rows"]:
            # Noted before it is sent, so that each row that W&B holds is known by its step.
            self.journal.write(json.dumps([self.next, row["id"]]) + "\n")
            self.journal.flush()
            self.run.log(
                {**row["values"], ID_KEY: row["id"], "_timestamp": row["at"]}, step=self.next, commit=True
            )
            self.next += 1
        os.fsync(self.journal.fileno())
        return {"next": self.next}

    def close(self, _request):
        if self.run is None:
            return {"next": self.next}
        run, self.run = self.run, None
        run_id, folder = run.id, Path(self.journal.name).parent
        self.journal.close()
        run.finish()
        # W&B's process writes the end of its log only when it ends.
        sys.modules["wandb"].teardown()
        if self.mode == "offline":
            kept = len(offline_ids(folder, run_id))
            if kept != self.next:
                raise RuntimeError("W&B's client kept %d of %d rows" % (kept, self.next))
        return {"next": self.next}


def import_wandb():
    try:
        import wandb
    except ImportError as error:
        raise Refused("the Python package wandb cannot be used (%s): %s" % (error, INSTALL)) from error
    return wandb


def settings(wandb):
    """Settings that record nothing about this process: no console, no code, no machine statistics."""
    wanted = {
        "console": "off",
        "silent": True,
        "disable_git": True,
        "disable_code": True,
        "save_code": False,
        "x_disable_stats": True,
        "init_timeout": INIT_WAIT_S,
    }
    known = getattr(wandb.Settings, "model_fields", wanted)
    return wandb.Settings(**{name: value for name, value in wanted.items() if name in known})


def take_over(folder):
    """Waits for an earlier bridge to end, and kills its leftovers. Then redirects standard output and error to a log."""
    mark = os.environ.setdefault(MARK, str(folder.resolve()))
    log = os.open(folder / "bridge.log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    if not locked(log, LOCK_WAIT_S):
        end_predecessors(mark)
        if not locked(log, KILLED_WAIT_S):
            raise RuntimeError("another process tracks this run with the folder %s" % folder)
    os.ftruncate(log, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def locked(file, seconds):
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)


def end_predecessors(folder):
    """Kills processes that were started for this folder, found by the mark in their environment. Works only on Linux."""
    mark = os.fsencode("%s=%s" % (MARK, folder))
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def offline_ids(folder, run_id):
    """Ids of the rows in all offline folders of the run, by step. Each start makes a folder; their steps do not overlap."""
    by_step = {}
    for path in sorted(folder.glob("wandb/*run-*-%s/run-%s.wandb" % (run_id, run_id))):
        for step, point in history_of(path):
            by_step[step] = point
    return [by_step[step] for step in whole(by_step)]


def whole(by_step):
    """Steps from 0 up to the first gap."""
    step = 0
    while step in by_step:
        yield step
        step += 1


def history_of(path):
    """Yields (step, id) for each row; leaves out a torn end."""
    from wandb.proto import wandb_internal_pb2

    for data in records_of(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") != "history":
            continue
        items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        if ID_KEY in items:
            step = items.get("_step")
            yield (int(json.loads(step)) if step else record.history.step.num), json.loads(items[ID_KEY])


def records_of(log):
    """Yields the records of W&B's transaction log up to a torn end: a header of 7 bytes, then LevelDB's log format with CRC-32."""
    position, parts = 7, []
    while position + 7 <= len(log):
        left = BLOCK_BYTES - position % BLOCK_BYTES
        if left < 7:
            position += left
            continue
        checksum, length, kind = struct.unpack_from("<IHB", log, position)
        data = log[position + 7 : position + 7 + length]
        if len(data) < length or zlib.crc32(data, zlib.crc32(bytes([kind]))) != checksum:
            return
        position += 7 + length
        if kind in (FULL, FIRST):
            parts = []
        parts.append(data)
        if kind in (FULL, LAST):
            yield b"".join(parts)


def online_ids(wandb, run, journal):
    """Ids of the rows on the server. It knows their number; their ids are read from the journal or else from the rows."""
    held = run.step
    if all(step in journal for step in range(held)):
        return [journal[step] for step in range(held)]
    rows = wandb.Api().run("%s/%s/%s" % (run.entity, run.project, run.id)).scan_history(keys=["_step", ID_KEY])
    by_step = {int(row["_step"]): row[ID_KEY] for row in rows}
    missing = next((step for step in range(held) if step not in by_step), None)
    if missing is not None:
        raise Refused(
            "W&B holds row %d of run %s, which is not Longhaul's: track the run in a project of its own" % (missing, run.id)
        )
    return [by_step[step] for step in range(held)]


def read_journal(path):
    """Ids by step; if a step has several, the last one counts, because it was sent last. Leaves out a torn end."""
    journal = {}
    with contextlib.suppress(FileNotFoundError, ValueError):
        for line in path.read_text(encoding="utf-8").splitlines():
            step, point = json.loads(line)
            journal[step] = point
    return journal


def write_journal(path, ids):
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        for step, point in enumerate(ids):
            file.write(json.dumps([step, point]) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def failure(error):
    message = str(error) or repr(error)
    key = os.environ.get("WANDB_API_KEY")
    if key:
        message = message.replace(key, "***")
    refused = isinstance(error, Refused) or type(error).__name__ in ("AuthenticationError", "UsageError")
    return {"ok": False, "refused": refused, "error": message}


def main():
    """Uses the original standard input and output only for the protocol, and redirects what W&B prints."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    bridge = Bridge()
    verbs = {"open": bridge.open, "log": bridge.log, "close": bridge.close}
    for line in requests:
        request = json.loads(line)
        try:
            answer = {"ok": True, **verbs[request["op"]](request)}
        except Exception as error:
            answer = failure(error)
        answers.write(json.dumps({**answer, "n": request.get("n")}) + "\n")
        answers.flush()
    # The parent no longer waits for an upload, so a timer limits it.
    threading.Timer(float(sys.argv[1]), lambda: os._exit(1)).start()
    with contextlib.suppress(Exception):
        bridge.close({})
    os._exit(0)


if __name__ == "__main__":
    main()
