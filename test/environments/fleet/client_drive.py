"""
Fleet's own client against the service. `python client_drive.py PART --url URL --tasks DIR` prints one line of JSON.

`lifecycle`: what its calls gave. `grades`: for each task and outcome (gold, wrong, nothing), what the service's execution gave and what
the SDK gives in local mode on copies of the same two databases.
"""

import argparse
import asyncio
import contextlib
import inspect
import io
import json
import os
import shutil
import tempfile
import time

import httpx
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fleet import Fleet
from fleet.tasks import verifier_from_string
from fleet.verifiers.local_executor import normalized_string_comparison

KEY = "test-key"


class Drive:
    def __init__(self, url, tasks):
        self.url = url
        self.fleet = Fleet(api_key=KEY, base_url=url)
        self.tasks = self.fleet.load_tasks_from_file(os.path.join(tasks, "tasks.json"))
        self.rows = {name: self._rows(os.path.join(tasks, f"{name}.jsonl")) for name in ("solutions", "wrong")}

    def _rows(self, path):
        with open(path) as file:
            return {row["task_key"]: row for row in map(json.loads, file)}

    def control(self, **patch):
        httpx.post(f"{self.url}/control", json=patch).raise_for_status()

    def state(self):
        return httpx.get(f"{self.url}/control").json()

    def make(self, task, **more):
        return self.fleet.make(task.env_key, data_key=task.data_key, env_variables=task.env_variables, **more)


def endpoint(env, path):
    return Client(StreamableHttpTransport(f"{env.urls.root}{path}", headers={"Authorization": f"Bearer {KEY}"}))


async def tool_names(env):
    names = {}
    for path in ("mcp", "api/v1/mcp"):
        async with endpoint(env, path) as client:
            names[path] = [tool.name for tool in await client.list_tools()]
    return names


async def carry_out(env, calls):
    """The texts of the results. A call that fails ends it."""
    if not calls:
        return []
    async with endpoint(env, "mcp") as client:
        results = [await client.call_tool(each["name"], each["arguments"]) for each in calls]
    return [result.content[0].text for result in results]


def refusal(action):
    try:
        action()
    except Exception as error:
        return {"type": type(error).__name__, "message": str(error), **{k: v for k, v in vars(error).items() if v is not None}}
    return None


def lifecycle(drive):
    fleet, task = drive.fleet, drive.tasks[0]
    made = {}
    drive.control(seed=1, drop_create_reply=1)
    # The client sends the creation again by itself, and each answer but the first is a 409.
    env = drive.make(task, run_id="drive", ttl_seconds=600, heartbeat_interval=60)
    drive.control(drop_create_reply=0)
    made["recovered"] = {"id": env.instance_id, "status": env.status, "creates": drive.state()["creates"]}
    made["reset"] = env.reset(seed=3).success
    made["resources"] = sorted(resource.name for resource in env.resources())
    made["health"] = env.instance.manager_health_check().status
    made["described"] = [table.name for table in env.db("seed").describe().tables]
    made["tools"] = asyncio.run(tool_names(env))
    asyncio.run(carry_out(env, [{"name": "create_wishlist", "arguments": {"name": "Drive"}}]))
    made["rows"] = [env.db(name).table("wishlists").eq("name", "Drive").count() for name in ("seed", "current")]
    allowed = [{"table": "wishlists", "pk": 4, "type": "insert"}, {"table": "activities", "pk": 1, "type": "insert"}]
    diff = lambda specs: env.db("seed").diff(env.db("current"), use_structured_diff=True).expect_only_v2(specs)
    made["allowed_diff"], made["refused_diff"] = refusal(lambda: diff(allowed)), refusal(lambda: diff(allowed[1:]))
    drive.control(lock=True)
    made["locked"] = [env.db(name).query("SELECT 1 FROM users").error for name in ("seed", "current")]
    drive.control(lock=False)
    made["unlocked"] = env.db("current").query("SELECT COUNT(*) FROM users").rows
    beat = env.heartbeat()
    made["heartbeat"] = {"interval": beat.interval_seconds, "due_in": beat.deadline_timestamp - time.time()}
    drive.control(gated=False)
    made["ungated"] = Fleet(api_key=KEY, base_url=drive.url).instance(env.instance_id).reset().success
    drive.control(gated=True, instance_limit=1)
    made["limit"] = refusal(lambda: drive.make(task))
    drive.control(instance_limit=1000)
    made["region"] = refusal(lambda: drive.make(task, region="mars-1"))
    made["environment"] = refusal(lambda: fleet.make("nowhere"))
    made["version"] = refusal(lambda: fleet.make("harbour:v9.9.9"))
    made["data_version"] = refusal(lambda: fleet.make("harbour", data_key="coast:v9.9.9"))
    made["key"] = refusal(lambda: Fleet(api_key="other", base_url=drive.url).account())
    made["regions"], made["environments"] = fleet.list_regions(), [each.env_key for each in fleet.list_envs()]
    made["account"] = [fleet.account().instance_count, drive.state()["counts"]["open_instances"]]
    made["deleted"] = [env.status, env.close().status]
    made["provisioned"] = provisioned(drive, task)
    made["kept"] = kept(drive, task)
    others = [drive.make(task, run_id="drive") for _ in range(2)]
    made["listed"] = [each.instance_id for each in fleet.instances(run_id="drive", status="running")]
    made["closed"] = [each.status for each in fleet.close_all(run_id="drive")]
    made["others"] = [each.instance_id for each in others]
    made["left"] = drive.state()["counts"]["open_instances"]
    return made


def provisioned(drive, task):
    """The states of an instance that takes long, and of one that the client waits for."""
    drive.control(provision_s=30)
    pending = drive.make(task, max_wait_seconds=0, run_id="drive")
    states = [pending.status]
    drive.control(advance_s=31, provision_s=0.2)
    states.append(drive.fleet.instance(pending.instance_id).status)
    started = time.monotonic()
    states.append(drive.make(task, run_id="drive").status)
    waited = time.monotonic() - started
    drive.control(provision_s=0)
    drive.fleet.close_all(run_id="drive")
    return {"states": states, "waited": waited}


def kept(drive, task):
    """An instance lives as long as its heartbeats come, and ends by its time to live at the latest."""
    env = drive.make(task, ttl_seconds=200, heartbeat_interval=60)
    states = []
    for beats in (True, True, True, False):
        drive.control(advance_s=50)
        if beats:
            env.heartbeat()
        states.append(drive.fleet.instance(env.instance_id).status)
    silent = drive.make(task, heartbeat_interval=60)
    drive.control(advance_s=61)
    states.append(drive.fleet.instance(silent.instance_id).status)
    return states


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


def grades(drive, keys):
    rows = []
    for task in drive.tasks if keys is None else [each for each in drive.tasks if each.key in keys]:
        for outcome, which in (("gold", "solutions"), ("wrong", "wrong"), ("nothing", None)):
            row = drive.rows[which][task.key] if which else {"calls": [], "final_answer": None}
            rows.append({"task": task.key, "outcome": outcome, **graded(drive, task, row)})
    return rows


def graded(drive, task, row):
    env = drive.make(task, run_id="grades")
    asyncio.run(carry_out(env, row["calls"]))
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["lifecycle", "grades"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--tasks", required=True)
    parser.add_argument("--keys")
    asked = parser.parse_args()
    drive = Drive(asked.url, asked.tasks)
    keys = asked.keys.split(",") if asked.keys else None
    print(json.dumps(lifecycle(drive) if asked.part == "lifecycle" else grades(drive, keys)))


if __name__ == "__main__":
    main()
