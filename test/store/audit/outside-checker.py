"""Checks a run in a directory store by docs/records.md alone, without any code of Longhaul. Prints each disagreement; exits with 1 if there is one.

    python3 outside-checker.py STORE RUN
"""
import gzip
import json
import math
import struct
import sys
from pathlib import Path

from outside_functions import canonical, digest, hash32, order, sha, sha_list, uniform

store, run = Path(sys.argv[1]), sys.argv[2]
problems, checked = [], {}


def check(what, key, holds):
    checked[what] = checked.get(what, 0) + 1
    if not holds:
        problems.append(f"{key}: {what}")


def read(key):
    data = (store / key).read_bytes()
    if key.endswith(".gz"):
        check("gzip header has time 0 and system 255", key, data[4:8] == b"\0\0\0\0" and data[9] == 255)
        data = gzip.decompress(data)
    record = json.loads(data)
    check("is canonical JSON", key, canonical(record).encode() == data)
    if record["schema"].removeprefix("longhaul.").split("/")[0] in ("run", "owner", "control", "update"):
        total = record.pop("sum", None)
        check("sum is that of the other members", key, total == sha(canonical(record)))
    return record


def header(name, data):
    (length,) = struct.unpack("<Q", data[:8])
    text = data[8 : 8 + length]
    check("header is padded to 8 bytes", name, length % 8 == 0)
    return json.loads(text), text.rstrip(b" ").decode(), data[8 + length :]


def place(text, cursor, n):
    return order(n, hash32(seed, hash32(text), cursor // n))[cursor % n]


record = read(f"runs/{run}/run.json")
spec, seed = record["spec"], record["seed"]
model = spec["model"]
if model.get("architecture"):
    made = {"init": model["init"], "architecture": model["architecture"], "initializer_range": model["initializer_range"], "seed": seed}
    made |= {name: model[name] for name in ("lora",) if name in model}
    made |= {"moments": model["moments"]} if model.get("moments", "fp32") != "fp32" else {}
    check("base_model follows from the spec", "run.json", sha(canonical(made)) == record["base_model"])
for part in ("tokenizer", "chat_template"):
    check("asset has the sha256 of its name", part, sha((store / f"assets/{record[part]}").read_bytes()) == record[part])
data_folder = f"datasets/{record['dataset']['name']}/{record['dataset']['version']}"
manifest = read(f"{data_folder}/manifest.json")
check("dataset's digest is the run's", data_folder, digest(manifest) == record["dataset"]["digest"])
for file in manifest["files"]:
    check("dataset file has its sha256", file["path"], sha((store / data_folder / file["path"]).read_bytes()) == file["sha256"])
lines = lambda name: [json.loads(line) for line in (store / data_folder / name).read_text().splitlines()]
tasks, demonstrations = lines("tasks.jsonl"), lines("demonstrations.jsonl")


def sequence(folder):
    count = len(list((store / folder).glob("*.json"))) if (store / folder).is_dir() else 0
    return [f"{folder}/{n}.json" for n in range(1, count + 1)]


owners, control = sequence(f"runs/{run}/owners"), sequence(f"runs/{run}/control")
asked = [read(key) for key in control]
for n, key in enumerate(owners, 1):
    check("number is its key's", key, read(key)["n"] == n)


def settings(folded):
    generator, trainer = dict(spec["generator"]), dict(spec["trainer"])
    for one in asked[:folded]:
        if one["change"]["kind"] == "setHyperparameters":
            for name, value in one["change"].items():
                for part in (generator, trainer):
                    if name in part:
                        part[name] = value
    return generator, trainer


def phase_of(step):
    first = 1
    for phase in spec["warm_start"]:
        count = math.ceil(phase["updates"] / phase["mini_batches_per_step"])
        if step < first + count:
            return phase, step - first
        first += count
    return None, step - first


def warmed(lr, warmup, update):
    return lr * min(1, (update + 1) / (warmup + 1))


def supervised(phase, i):
    kind = [at for at, one in enumerate(demonstrations) if one["kind"] == phase["demonstrations"]]
    first, size = i * phase["mini_batches_per_step"], phase["mini_batch_size"]
    updates = range(first, min(first + phase["mini_batches_per_step"], phase["updates"]))
    decaying = math.floor(phase["updates"] * phase["decay_share"] + 0.5)
    rates = []
    for u in updates:
        rate = warmed(phase["lr"], phase["warmup_updates"], u)
        into = max(0, min(decaying, u + 1 - (phase["updates"] - decaying)))
        rates.append(rate * (1 - 0.9 * (into / decaying)) if decaying else rate)
    batches = [[kind[place(f"sft/{phase['name']}", u * size + j, len(kind))] for j in range(size)] for u in updates]
    return {"kind": "sft", "mini_batches": batches}, rates, {"pass_rates": {}, "cursors": {}}


def by_units(names):
    return sorted(names, key=lambda name: name.encode("utf-16-be"))


def pools_by(by):
    pools = {}
    for task in tasks:
        if task["split"] == "train":
            pools.setdefault(task["env_key" if by == "env" else "template"], []).append(task)
    return pools


def draw(step, count, planned, earlier, by, rules, rates, cursors):
    """`count` slots after `earlier` ones, of a step whose plan has `planned`; advances `cursors`."""
    pool_of = lambda one: one["env_key" if by == "env" else "template"]
    pools = pools_by(by)
    names = by_units(pools)
    env_of = lambda name: pools[name][0]["env_key"]
    rate_of = lambda name: rates.get(name, 0.5)
    weight_of = lambda name: rate_of(name) * (1 - rate_of(name)) + rules["floor"] if rules["floor"] else len(pools[name])
    weights = {name: weight_of(name) * rules.get("weights", {}).get(env_of(name), 1) for name in names}
    turns = by_units({env_of(name) for name in names})
    total = len(earlier) + count
    most = math.ceil(rules["max_share"] * total - 1e-9) if "max_share" in rules else total
    taken = {name: [[t["task_key"] for t in pools[name]].index(s["task_key"]) for s in earlier if pool_of(s) == name] for name in names}
    slots = []
    for s in range(len(earlier), total):
        turn = turns[(step * planned + s) % len(turns)]
        mine = [n for n in names if len(taken[n]) < most and (rules.get("balance") != "env" or env_of(n) == turn)]
        at, reached = uniform(seed, step, s, 0x7A51) * sum(weights[n] for n in mine), 0
        for chosen in mine:
            reached += weights[chosen]
            if at < reached:
                break
        used, own = taken[chosen], pools[chosen]
        while True:
            cursor = cursors.get(chosen, 0)
            cursors[chosen] = cursor + 1
            index = place(chosen, cursor, len(own))
            if index not in used or len(set(used)) == len(own):
                break
        used.append(index)
        slots.append({"slot": s, "seed": hash32(seed, step, s), **{name: own[index][name] for name in ("task_key", "env_key", "template")}})
    return slots


def grpo(step, i, before, trainer):
    curriculum = trainer.get("curriculum", {"by": "template", "floor": trainer["curriculum_floor"]})
    by = curriculum["by"]
    said = {"by": "env"} if by == "env" else {}
    rates, cursors = {}, {}
    if before and before[0]["kind"] == "grpo" and before[0]["curriculum"].get("by") == said.get("by"):
        plan, update, waves = before
        rates = dict(plan["curriculum"]["pass_rates"])
        cursors = dict(waves[-1]["cursors"] if waves else plan["curriculum"]["cursors"])
        slots = plan["slots"] + [slot for wave in waves for slot in wave["slots"]]
        for slot, values in zip(slots, update["outcomes"]):
            graded = [value for value in values if value is not None]
            if graded:
                pool = slot["env_key" if by == "env" else "template"]
                rate = rates.get(pool, 0.5)
                rates[pool] = rate + 0.2 * (sum(value >= 1 - 1e-9 for value in graded) / len(graded) - rate)
    count = trainer["train_batch_size"]
    rules = {name: value for name, value in {**curriculum, "balance": trainer.get("balance")}.items() if name != "by" and value is not None}
    slots = draw(step, count, count, [], by, rules, rates, cursors)
    expected = {"kind": "grpo", "slots": slots}
    if "dynamic_sampling" in trainer:
        asked = trainer["dynamic_sampling"]
        enough = min(count, math.floor(asked.get("min_replace_ratio", 0.3) * count) + 1)
        wanted = count if asked["type"] == "filter" else enough
        expected["dynamic_sampling"] = {"type": asked["type"], "max_sample_batches": asked["max_sample_batches"], "wanted": wanted, **rules}
    rate = warmed(trainer["lr"], trainer["warmup_steps"], i)
    return expected, [rate], {"pass_rates": rates, "cursors": cursors, **said}


def has_signal(values):
    graded = [value for value in values if value is not None]
    return any(value != graded[0] for value in graded)


def waves_of(folder, plan, outcomes):
    """The waves that follow from the outcomes, each compared with its record."""
    waves, slots, asked = [], list(plan.get("slots", [])), plan.get("dynamic_sampling")
    while asked and len(waves) + 1 < asked["max_sample_batches"] and len(outcomes) >= len(slots):
        known, planned = outcomes[: len(slots)], len(plan["slots"])
        good = sum(map(has_signal, known))
        if good >= asked["wanted"]:
            break
        count = min(planned, math.ceil((asked["wanted"] - good) * len(slots) / good)) if good else planned
        cursors = dict(waves[-1]["cursors"] if waves else plan["curriculum"]["cursors"])
        by = plan["curriculum"].get("by", "template")
        drawn = draw(plan["step"], count, planned, slots, by, asked, plan["curriculum"]["pass_rates"], cursors)
        wave = {"schema": "longhaul.wave/1", "run": plan["run"], "step": plan["step"], "wave": len(waves) + 1, "plan": digest(plan)}
        wave |= {"outcomes": sha(canonical(known)), "slots": drawn, "cursors": cursors}
        key = f"{folder}/waves/{len(waves) + 1}.json"
        check("wave follows from the outcomes before it", key, (store / key).exists() and read(key) == wave)
        waves.append(wave)
        slots += drawn
    check("there are no other waves", folder, len(list((store / folder).glob("waves/*"))) == len(waves))
    return waves


def differ(episodes):
    graded = [one["outcome"]["value"] for one in episodes if one["outcome"]["status"] == "graded"]
    return any(value != graded[0] for value in graded)


def overlong(episode, limits):
    last = episode["turns"][-1] if episode["turns"] else {"start": 0, "end": 0}
    full = last["end"] - last["start"] >= limits["max_generate_length"] or last["end"] >= limits["max_sequence_length"]
    return episode["stop_reason"] == "length" or episode["stop_reason"] == "max_turns" and full


def targets_of(plan, groups):
    asked = plan.get("dynamic_sampling")
    if asked:
        planned = len(plan["slots"])
        groups = [group for group in groups if differ(group)][:planned]
        if asked["type"] == "replace" and len(groups) >= asked["wanted"]:
            groups = [groups[at % len(groups)] for at in range(planned)]
    if plan["advantages"]["estimator"] == "reinforce++":
        groups = [[one for group in groups for one in group]]
    graded = [one for group in groups if differ(group) for one in group if one["outcome"]["status"] == "graded"]
    filtered = plan.get("overlong_filtering", False)
    return sum(len(one["logprobs"]) for one in graded if not (filtered and overlong(one, plan["sampling"])))


def folded_of(folder, place):
    path = store / folder / "episodes.jsonl.gz"
    if not path.exists():
        return None
    first, *rest = gzip.decompress(path.read_bytes()).decode().splitlines()
    said = json.loads(first)
    check("folded episodes are as many as it says", folder, said["count"] == len(rest))
    check("folded episodes are of their place", folder, all(said[name] == value for name, value in place.items()))
    check("folded lines are canonical JSON", folder, all(canonical(json.loads(line)) == line for line in rest))
    episodes = [json.loads(line)["episode"] for line in rest]
    return {(one["slot"], one["sample"]): one for one in episodes}


def collected(member):
    return [one for key in sequence(f"runs/{run}/gc") for one in read(key).get(member, [])]


gone = {member: collected(member) for member in ("checkpoints", "episodes", "batches", "evaluations")}


def batch_of(folder, step):
    path = store / folder / "batch.safetensors"
    if path.exists():
        return path.read_bytes()
    check("a compressed batch was collected", folder, step in gone["batches"])
    return gzip.decompress(path.with_name("batch.safetensors.gz").read_bytes())


steps = sorted(path for path in (store / f"runs/{run}/steps").iterdir() if (path / "update.json").exists())
base = read(f"runs/{run}/steps/000000/update.json")["identity"]
check("base is of the run's model", "step 0", base["base_model"] == record["base_model"])
state, before, states = base["state"], None, {base["state"]: 0}
for step in range(1, len(steps)):
    folder = f"runs/{run}/steps/{step:06}"
    plan, update = read(f"{folder}/plan.json"), read(f"{folder}/update.json")["identity"]
    check("plan and update begin with the state before", folder, plan["previous_state"] == update["previous_state"] == state)
    check("update names its plan", folder, update["plan"] == digest(plan))
    bytes_of = lambda keys: sha_list(sha((store / key).read_bytes()) for key in keys)
    check("plan names run.json", folder, plan["run_digest"] == sha((store / f"runs/{run}/run.json").read_bytes()))
    check("plan names its control", folder, plan["control_digest"] == bytes_of(control[: plan["control"]]))
    check("plan names its owners", folder, plan["owner_digest"] == bytes_of(owners[: plan["owner"]]))
    phase, i = phase_of(step)
    generator, trainer = settings(plan["control"])
    expected, rates, curriculum = supervised(phase, i) if phase else grpo(step, i, before, trainer)
    for name, value in expected.items():
        check(f"plan's {name} can be planned again", folder, plan[name] == value)
    check("plan's curriculum can be planned again", folder, plan["curriculum"] == curriculum)
    check("plan's rates can be planned again", folder, plan["optimizer"]["learning_rates"] == rates)
    reset = i == 0 or not phase and before[0]["optimizer"]["reset_moments"] and before[1]["applied"] is not True
    check("plan's reset of moments can be planned again", folder, plan["optimizer"]["reset_moments"] == reset)
    check("plan's adam_betas are the phase's", folder, plan["optimizer"]["adam_betas"] == (phase or trainer)["adam_betas"])
    check("plan's overlong filtering is the spec's", folder, plan.get("overlong_filtering", False) == (not phase and trainer.get("apply_overlong_filtering", False)))
    sampling = (spec["generator"] if phase else generator).items()
    check("plan's sampling is the spec's", folder, all(plan["sampling"].get(n, v) == v for n, v in sampling))
    stored_batch = batch_of(folder, step)
    shape, text, _ = header(f"{folder} batch", stored_batch)
    check("batch header is sorted", folder, text == canonical(shape))
    batch = json.loads(shape["__metadata__"]["longhaul"])
    check("update names its batch", folder, update["batch"] == sha(stored_batch))
    check("step id follows", folder, update["step_id"] == sha_list([state, update["batch"], update["plan"]]))
    if "rescored" in update:
        rescored = (store / folder / f"rescored.{update['batch'][:16]}.safetensors").read_bytes()
        tensors, _, data = header(f"{folder} rescored", rescored)
        said = {"longhaul": update["batch"], "sha256": sha(data)}
        check("update names its rescored log-probs", folder, update["rescored"] == sha(rescored))
        check("rescored log-probs are of the batch", folder, said.items() >= tensors["__metadata__"].items())
        check("rescored log-probs are those of the targets", folder, tensors["logprobs"]["shape"] == shape["target_rows"]["shape"])
    check("batch names plan and state", folder, (batch["plan"], batch["previous_state"]) == (update["plan"], state))
    check("batch has the update's outcomes", folder, batch["outcomes"] == update["outcomes"])
    if phase:
        inputs = [sha(canonical(demonstrations[line])) for batch_lines in plan["mini_batches"] for line in batch_lines]
    else:
        inputs, outcomes, groups, folded = [], [], [], folded_of(folder, {"run": run, "step": step})
        check("folded episodes were collected", folder, folded is None or step in gone["episodes"])
        waves = waves_of(folder, plan, update["outcomes"])
        for slot in plan["slots"] + [slot for wave in waves for slot in wave["slots"]]:
            outcomes.append([])
            groups.append([])
            for sample in range(plan["samples_per_slot"]):
                key = f"{folder}/episodes/{slot['slot']:05}.{sample:03}.json.gz"
                episode = folded[slot["slot"], sample] if folded else read(key)
                inputs.append(digest(episode))
                groups[-1].append(episode)
                outcomes[-1].append(episode["outcome"].get("value"))
                check("episode is of plan and state", key, (episode["plan"], episode["state"]) == (update["plan"], state))
                check("episode is of its slot's task", key, episode["task_key"] == slot["task_key"])
                turns = episode["turns"]
                check("tool errors are the turns with one", key, episode["metrics"]["tool_errors"] == sum(t.get("error", False) for t in turns))
                check("log-probs are those of the turns", key, len(episode["logprobs"]) == sum(t["end"] - t["start"] for t in turns))
        check("outcomes are those of the episodes", folder, outcomes == update["outcomes"])
        check("targets are those of the outcomes", folder, batch["loss_tokens"] == [targets_of(plan, groups)])
    check("batch names its inputs", folder, batch["inputs"] == sha_list(inputs))
    if update["applied"] is not True:
        check("what was not applied keeps the state", folder, update["state"] == state)
    state, before = update["state"], (plan, update, [] if phase else waves)
    states[state] = step

held_out = [task for task in tasks if task["split"] == "held_out"]
for path in sorted((store / "evals").glob("*/*/result.json")):
    key = str(path.relative_to(store))
    result, suite = read(key), read(key.replace("result.json", "suite.json"))
    check("evaluation is of a state of the run", key, result["state"] in states)
    check("suite has the digest of its key", key, digest(suite) == path.parent.name == result["suite"])
    most = spec["data"]["final_eval_tasks" if suite["name"] == "final" else "eval_tasks"]
    chosen = [(task["task_key"], hash32(seed, k)) for k, task in enumerate(held_out[:most])]
    check("suite can be chosen again", key, [(task["task_key"], task["seed"]) for task in suite["tasks"]] == chosen)
    check("suite is played at temperature 1", key, suite["sampling"]["temperature"] == 1)
    folded = folded_of(path.parent.relative_to(store), {"state": result["state"], "suite": result["suite"]})
    named = {"state": result["state"], "suite": result["suite"]}
    check("a folded evaluation was collected", key, folded is None or named in gone["evaluations"])
    singles = [] if folded else sorted((path.parent / "episodes").iterdir())
    played = [*folded.values()] if folded else [read(str(one.relative_to(store))) for one in singles]
    rollouts = [(slot, sample) for slot in range(len(chosen)) for sample in range(suite["samples_per_task"])]
    check("an evaluation has an episode a rollout", key, [(one["slot"], one["sample"]) for one in played] == rollouts)
    graded = [one["outcome"]["value"] for one in played if one["outcome"]["status"] == "graded"]
    share = sum(value >= 1 - 1e-9 for value in graded) / len(graded) if graded else None
    check("pass@1 is over graded episodes", key, result["pass_at_1"] == share)
    for name, figures in result["environments"].items():
        own = [one["metrics"] for one in played if one["env_key"] == name]
        check("mean turns are over all episodes", key, figures["mean_turns"] == sum(one["turns"] for one in own) / len(own))

for path in sorted((store / "checkpoints").glob(f"*/*/{run}/*/manifest.json")):
    manifest = read(str(path.relative_to(store)))
    check("checkpoint is of the chain", path.parent.name, states.get(manifest["state"]) == manifest["step"])
    for file in manifest["files"]:
        shape, text, _ = header(file["path"], (path.parent / file["path"]).read_bytes())
        check("state file has its sha256", path.parent.name, sha((path.parent / file["path"]).read_bytes()) == file["sha256"])
        names = list(shape)
        entries = [{member: shape[name][member] for member in ("dtype", "shape", "data_offsets")} for name in names[1:]]
        ordered = {"__metadata__": dict(sorted(shape["__metadata__"].items())), **dict(sorted(zip(names[1:], entries)))}
        check("state header is as it is said", path.parent.name, text == json.dumps(ordered, separators=(",", ":"), ensure_ascii=False))

for path in sorted((store / f"runs/{run}/reports/transcripts").glob("*.js")):
    call = path.read_text()
    arguments = json.loads(f"[{call.removeprefix('longhaulChunk(').removesuffix(chr(41) + ';' + chr(10))}]")
    check("transcripts have the sha256 of what they say", path.name, [sha(arguments[1])[:16], arguments[0]] == [path.stem] * 2)

print("\n".join(problems) or f"nothing disagrees: {sum(checked.values())} checks of {len(checked)} kinds, {len(steps) - 1} steps")
sys.exit(1 if problems else 0)
