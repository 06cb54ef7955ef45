"""Runs verifiers as the service does: from uploaded bundles, in processes that a time limit can end."""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import pickle
import sys
import time
import zipfile

from fleet.models import VerifiersExecuteResponse

PROCESSES = 2
# How long SQLite waits for a lock; Fleet's databases wait 5 s.
BUSY_S = 0.7
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "verifier_worker.py")


class BadBundle(Exception):
    def __init__(self, message, status=400):
        super().__init__(message)
        self.status = status


class BadArguments(Exception):
    pass


class PlainUnpickler(pickle.Unpickler):
    """Arguments are texts, numbers, lists and dicts."""

    def find_class(self, module, name):
        raise BadArguments(f"args hold {module}.{name}, which is not plain data")


class WorkerLost(Exception):
    pass


class WorkerPool:
    async def start(self):
        self.idle = asyncio.Queue()
        self.processes = set()
        self.spawning = set()
        await asyncio.gather(*(self._spawn() for _ in range(PROCESSES)))

    async def stop(self):
        for process in self.processes:
            end(process)
            await process.wait()

    async def run(self, job, timeout):
        """The worker's answer. Raises `TimeoutError`, or `WorkerLost` when the verifier ended its process."""
        process = await self.idle.get()
        is_well = False
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            await process.stdin.drain()
            line = await asyncio.wait_for(process.stdout.readline(), timeout)
            if not line:
                raise WorkerLost("the verifier ended its process")
            is_well = True
            return json.loads(line)
        finally:
            if is_well:
                self.idle.put_nowait(process)
            else:
                self.processes.discard(process)
                end(process)
                spawn = asyncio.create_task(self._spawn())
                self.spawning.add(spawn)
                spawn.add_done_callback(self.spawning.discard)

    async def _spawn(self):
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, WORKER, stdin=pipe, stdout=pipe, limit=1 << 24)
        self.processes.add(process)
        # Its imports are no part of a verifier's time.
        await process.stdout.readline()
        self.idle.put_nowait(process)


def end(process):
    """It may have ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()


class Verifiers:
    def __init__(self, instances, faults, log):
        self.instances, self.faults, self.log = instances, faults, log
        self.bundles = {}
        self.pool = WorkerPool()

    def has(self, sha):
        return sha in self.bundles

    async def execute(self, asked, bundle, args):
        """`asked`: the SDK's request; `bundle`, `args`: its decoded bytes, or None. Raises `BadBundle`, `BadArguments`."""
        sha, is_cached = self._store(asked.sha256, bundle)
        values, kwargs, instance_id = arguments_of(args, asked.args_array)
        number = len(self.log["executions"]) + 1
        entry = {"instance_id": instance_id, "key": asked.key, "sha256": sha, "fault": None, "result": None, "success": None}
        self.log["executions"].append(entry)
        started = time.monotonic()
        answer = await self._answer(asked, sha, instance_id, values, kwargs, entry)
        entry.update(result=answer["result"], success=answer["success"])
        spent = int((time.monotonic() - started) * 1000)
        facts = {"key": asked.key, "execution_id": f"execution_{number}", "execution_time_ms": spent}
        return VerifiersExecuteResponse(**facts, bundle_cache_hit=is_cached, **answer)

    def _store(self, sha, bundle):
        """The bundle's hash, and whether it was known before."""
        if bundle is None:
            if sha not in self.bundles:
                raise BadBundle(f"Bundle not found: {sha}", 404)
            return sha, True
        true_sha = hashlib.sha256(bundle).hexdigest()
        if sha not in (None, true_sha):
            raise BadBundle(f"The bundle has the hash {true_sha}, not {sha}")
        try:
            with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
                names = archive.namelist()
                if "requirements.txt" not in names or "verifier.py" not in names:
                    raise BadBundle(f"The bundle holds {names}; requirements.txt and verifier.py are needed")
                code = archive.read("verifier.py").decode()
        except (zipfile.BadZipFile, UnicodeDecodeError) as error:
            raise BadBundle(f"The bundle is no zip of texts: {error}") from error
        is_cached = true_sha in self.bundles
        self.bundles[true_sha] = code
        self.log["uploads"].append({"sha256": true_sha, "is_repeated": is_cached})
        return true_sha, is_cached

    async def _answer(self, asked, sha, instance_id, values, kwargs, entry):
        for fault, given in FAULTY_ANSWERS.items():
            if self.faults.strikes(fault):
                entry["fault"] = fault
                return given
        instance = self.instances.running(instance_id)
        if instance is None:
            return failed("RuntimeError", f"Instance '{instance_id}' is not running")
        job = {
            "code": self.bundles[sha],
            "function": asked.function_name,
            "args": values,
            "kwargs": kwargs,
            "databases": {name: instance.path(name) for name in ("seed", "current")},
        }
        started = time.monotonic()
        is_locked = self.faults.strikes("lock_while_verifying")
        if is_locked:
            entry["fault"] = "lock_while_verifying"
            instance.locks.take()
        try:
            return await self.pool.run(job, asked.timeout)
        except asyncio.TimeoutError:
            return failed("TimeoutError", f"Verifier execution timed out after {asked.timeout} seconds")
        except WorkerLost as error:
            return failed("RuntimeError", str(error))
        finally:
            if is_locked:
                await asyncio.sleep(started + BUSY_S - time.monotonic())
                self._unlock(instance)

    def _unlock(self, instance):
        """At once, so that no query behind the verifier sees the lock, or after `lock_ms`."""
        if self.faults["lock_ms"] == 0:
            instance.locks.release()
        else:
            asyncio.get_running_loop().call_later(self.faults["lock_ms"] / 1000, instance.locks.release)


def failed(kind, message):
    error = {"type": kind, "message": message, "traceback": f"{kind}: {message}\n"}
    return {"success": False, "result": None, "error": error, "stdout": ""}


FAULTY_ANSWERS = {
    "fail_verify": failed("RuntimeError", "Verifier execution environment failed to start"),
    "judge_error": {"success": True, "result": 0, "error": None, "stdout": "JUDGE ERROR: the model did not answer\n"},
    "result_none": {"success": True, "result": None, "error": None, "stdout": ""},
}


def arguments_of(pickled, array):
    """(positional arguments after the environment, keyword arguments, instance id). Their last positional is `{"env": id}`."""
    if pickled is None:
        values, kwargs = [None, *(array or [])], {}
    else:
        try:
            held = PlainUnpickler(io.BytesIO(pickled)).load()
            values, kwargs = list(held["args"]), dict(held["kwargs"])
        except BadArguments:
            raise
        except Exception as error:
            raise BadArguments(f"args are no pickle of a dict with args and kwargs: {error}") from error
        if array is not None and values[1:] != array:
            raise BadArguments(f"args hold {values[1:]}, and args_array {array}")
    named = values[-1] if len(values) > 1 else None
    if values[:1] != [None] or not isinstance(named, dict) or set(named) != {"env"}:
        raise BadArguments('args must begin with None and end with {"env": the id of an instance}')
    return values[1:-1], kwargs, named["env"]
