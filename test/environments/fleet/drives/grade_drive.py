"""
The grades of all tasks for three outcomes (gold, wrong, nothing): what the service's execution gives, what the SDK gives in local mode on
copies of the same two databases, and what the service gives while they are locked.
"""

import asyncio
import contextlib
import inspect
import io
import os
import shutil
import tempfile

from drive import run
from fleet.tasks import verifier_from_string
from fleet.verifiers.local_executor import normalized_string_comparison


def local_result(fleet, task, folder, final_answer):
    """The verifier's result on the SDK's local environment, in the names that the SDK gives to a verifier, beside its own functions."""
    entry = verifier_from_string(task.verifier_func, task.key, task.key).func
    scope = {**entry.__globals__, "normalized_string_comparison": normalized_string_comparison}
    exec(task.verifier_func, scope)
    env = fleet.instance({name: os.path.join(folder, f"{name}.sqlite") for name in ("seed", "current")})
    takes_answer = "final_answer" in inspect.signature(scope[entry.__name__]).parameters
    kwargs = {"final_answer": final_answer} if final_answer and takes_answer else {}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            result = scope[entry.__name__](env, **kwargs)
            result = asyncio.run(result) if inspect.iscoroutine(result) else result
        return {"success": True, "result": result}
    except Exception as error:
        return {"success": False, "error": type(error).__name__}


def grades(drive):
    rows = []
    for task in drive.tasks:
        for outcome, which in (("gold", "solutions"), ("wrong", "wrong"), ("nothing", None)):
            row = drive.rows[which][task.key] if which else {"task_key": task.key, "calls": [], "final_answer": None}
            rows.append({"task": task.key, "outcome": outcome, **graded(drive, task, row)})
    return rows


def graded(drive, task, row):
    env = drive.make(task, run_id="grades")
    drive.play(env, row)
    takes_answer = "final_answer" in task.verifier_func
    answer = {"final_answer": row["final_answer"]} if row["final_answer"] and takes_answer else {}
    [files] = [each["databases"] for each in drive.state()["instances"] if each["instance_id"] == env.instance_id]
    with tempfile.TemporaryDirectory() as folder:
        for name, path in files.items():
            shutil.copyfile(path, os.path.join(folder, f"{name}.sqlite"))
        local = local_result(drive.fleet, task, folder, row["final_answer"])
    remote = outcome_of(task.verify_detailed(env, **answer))
    drive.control(lock=True)
    locked = outcome_of(task.verify_detailed(env, **answer))
    drive.control(lock=False)
    env.close()
    return {"remote": remote, "local": local, "locked": locked}


def outcome_of(response):
    if response.success:
        return {"success": True, "result": response.result}
    return {"success": False, "error": response.error["type"]}


if __name__ == "__main__":
    run(grades)
