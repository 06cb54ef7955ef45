"""What the faults of the service do to Fleet's own client and to an MCP session."""

import time

from drive import KEY, MCP_HEADERS, refusal, run
from fleet.tasks import Task


def creates(drive, task):
    drive.control(seed=1, fail_create=1)
    before = drive.state()
    refused = refusal(lambda: drive.make(task))
    drive.control(fail_create=0)
    after = drive.state()
    new = after["creates"][len(before["creates"]) :]
    return {
        "refused": refused["type"],
        "tries": len(new),
        "request_ids": len({each["request_id"] for each in new}),
        "made": len(after["instances"]) - len(before["instances"]),
    }


def rates(drive):
    """Which of 40 creations a rate of a quarter hits, twice from the same seed."""
    post = lambda: drive.http.post(f"{drive.url}/v1/env/instances", json={"env_key": "harbour"}, headers={"Authorization": f"Bearer {KEY}"})
    patterns = []
    for _ in range(2):
        drive.control(seed=7, fail_create=0.25)
        patterns.append([post().status_code == 500 for _ in range(40)])
    drive.control(fail_create=0, expire_all=True)
    return {"equal": patterns[0] == patterns[1], "struck": sum(patterns[0])}


def calls(drive, env):
    session = drive.session(env)
    before = len(drive.state()["calls"])
    drive.control(drop_call_reply=1)
    dropped = session.call("create_wishlist", name="Dropped")
    drive.control(drop_call_reply=0, fail_call=1)
    failed = session.call("create_wishlist", name="Failed")
    drive.control(fail_call=0, lock=True)
    locked = session.call("list_bookings")
    drive.control(lock=False, slow_call_s=0.3)
    started = time.monotonic()
    session.call("get_profile")
    is_slow = time.monotonic() - started >= 0.3
    drive.control(slow_call_s=0)
    return {
        "slow": is_slow,
        "dropped": dropped,
        "failed": failed,
        "locked": locked,
        "logged": [each["arguments"].get("name") for each in drive.state()["calls"][before:][:2]],
        "exists": session.call("create_wishlist", name="Dropped"),
        "made": session.call("create_wishlist", name="Failed"),
        "missing": session.call("pay_booking", booking_id=999, payment_method_id="card_1a"),
        "invalid": session.call("pay_booking", booking_id="x").splitlines()[0],
    }


def gates(drive, task, env):
    other = drive.make(task)
    session = drive.session(env)
    session.url = f"{other.urls.root}mcp"
    stranger = drive.session(env, headers={**MCP_HEADERS, "Authorization": "Bearer other"})
    bare = drive.http.get(f"{env.urls.manager.api}/resources")
    other.close()
    gone = drive.session(other)
    token = drive.http.get(f"{drive.url}/v1/runner-auth/token", headers={"Authorization": f"Bearer {KEY}"}).json()["token"]
    resources = lambda each: drive.http.get(f"{each.urls.manager.api}/resources", headers={"X-Runner-Token": token}).status_code
    return {
        "foreign_session": session.call("get_profile"),
        "wrong_key": stranger.opened.status_code,
        "without_token": bare.status_code,
        "with_token": resources(env),
        "ended": [gone.opened.status_code, resources(other)],
    }


def repeats(drive, task):
    """The texts of the same calls on two instances."""
    texts = []
    for _ in range(2):
        env = drive.make(task)
        session = drive.session(env)
        rows = [session.call(each["name"], **each["arguments"]) for each in drive.rows["solutions"][task.key]["calls"]]
        reviews = session.call("list_reviews", city="Bergen")
        texts.append([*rows, reviews, session.call("search_hotels", city="Bergen", page=2), session.call("list_bookings")])
        env.close()
    return {"equal": texts[0] == texts[1], "longest": max(len(text) for text in texts[0])}


def deletes(drive, task):
    env = drive.make(task)
    status = lambda: drive.fleet.instance(env.instance_id).status
    drive.control(fail_delete=1)
    refused = refusal(env.close)["type"]
    kept = status()
    drive.control(fail_delete=0, drop_delete_reply=0.5, seed=1)
    closed = [env.close().status, status()]
    struck = drive.state()["faults"]["drop_delete_reply"]
    drive.control(drop_delete_reply=0)
    return {"refused": refused, "kept": kept, "closed": closed, "struck": struck > 0}


def verdicts(drive, env):
    """What each fault makes of a verifier that gives 1."""
    task = verifier_task("def verify(env):\n    return 1 if env.db('current').table('users').count() == 3 else 0\n")
    given = {"none": verdict(task, env)}
    for fault in ("fail_verify", "judge_error", "result_none"):
        drive.control(**{fault: 1})
        given[fault] = verdict(task, env)
        drive.control(**{fault: 0})
    drive.control(verify_http=1)
    given["verify_http"] = refusal(lambda: task.verify_detailed(env))["type"]
    drive.control(verify_http=0, lock_while_verifying=1, lock_ms=3000)
    env.instance.load()
    given["locked"] = verdict(task, env)
    query = lambda: [env.db(name).query("SELECT 1 FROM users").error for name in ("seed", "current")]
    after = [query()]
    drive.control(lock_while_verifying=0)
    time.sleep(3.2)
    given["canaries"] = [*after, query()]
    given["uploads"] = len([each for each in drive.state()["uploads"] if not each["is_repeated"]])
    return given


def verifier_task(code):
    return Task(key="drive", prompt="", env_id="harbour", verifier_func=code)


def verdict(task, env, **kwargs):
    answer = task.verify_detailed(env, **kwargs)
    return [answer.success, answer.result, (answer.error or {}).get("type"), answer.stdout, answer.bundle_cache_hit]


def wrongs(drive, env):
    """Verifiers and requests that are wrong, and a right one after each."""
    codes = {
        "raises": "def verify(env):\n    print('before')\n    raise KeyError('x')\n",
        "unserialisable": "def verify(env):\n    return {1, 2}\n",
        "exits": "import os\ndef verify(env):\n    os._exit(3)\n",
        "leaves": "import sys\ndef verify(env):\n    sys.exit(3)\n",
        "after": "def verify(env):\n    return True\n",
    }
    given = {name: verdict(verifier_task(code), env) for name, code in codes.items()}
    endless = verifier_task("def verify(env):\n    while True:\n        pass\n")
    endless._rebuild_verifier()
    bundle, sha = endless.verifier._get_or_create_bundle()
    execute = lambda **changes: env.execute_verifier_remote(
        **{
            **{"bundle_data": bundle, "bundle_sha": sha, "key": "drive", "function_name": "verify", "timeout": 1},
            **{"args": ({"env": env.instance_id},), "args_array": [{"env": env.instance_id}], "kwargs": {}, **changes},
        }
    )
    given["endless"] = execute().error
    message = lambda **changes: (refusal(lambda: execute(**changes)) or {}).get("message")
    given["unknown_bundle"] = message(bundle_sha="0" * 64, needs_upload=False)
    given["wrong_hash"] = message(bundle_sha="0" * 64)
    given["no_zip"] = message(bundle_data=b"text", bundle_sha="982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1")
    given["other_array"] = message(args_array=[])
    given["no_function"] = execute(function_name="missing").error["message"]
    gone = {"env": "gone"}
    given["no_instance"] = execute(args=(gone,), args_array=[gone]).error["message"]
    given["at_last"] = verdict(verifier_task(codes["after"]), env)
    return given


def faults(drive):
    task = drive.tasks[0]
    given = {"creates": creates(drive, task), "rates": rates(drive)}
    env = drive.make(task)
    given["calls"], given["gates"] = calls(drive, env), gates(drive, task, env)
    given["repeats"], given["deletes"] = repeats(drive, task), deletes(drive, task)
    given["verdicts"], given["wrongs"] = verdicts(drive, env), wrongs(drive, env)
    drive.control(expire_all=True)
    given["expired"] = [drive.fleet.instance(env.instance_id).status, drive.state()["counts"]["open_instances"]]
    return given


if __name__ == "__main__":
    run(faults)
