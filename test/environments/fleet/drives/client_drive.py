"""What Fleet's own client makes of the life of an instance."""

import asyncio
import time

from drive import KEY, refusal, run
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fleet import Fleet


def endpoint(env, path):
    return Client(StreamableHttpTransport(f"{env.urls.root}{path}", headers={"Authorization": f"Bearer {KEY}"}))


async def tool_names(env):
    names = {}
    for path in ("mcp", "api/v1/mcp"):
        async with endpoint(env, path) as client:
            names[path] = [tool.name for tool in await client.list_tools()]
    return names


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
    drive.session(env).call("create_wishlist", name="Drive")
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


if __name__ == "__main__":
    run(lifecycle)
