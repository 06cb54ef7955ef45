"""Writes tasks.jsonl and solutions.jsonl of τ²-bench: `python make_tasks.py [--full] [--to FOLDER]`. Names the tasks that it leaves out."""

import argparse
import json
import re
from pathlib import Path

import world

# The day on which each policy says that it is.
DATES = {"airline": "2024-05-15", "telecom": "2025-02-25"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "data", help="folder (data/)")
    parser.add_argument("--full", action="store_true", help="also telecom's 2,171 tasks outside τ²'s splits")
    options = parser.parse_args()
    tasks, solutions = [], []
    for domain in world.DOMAINS:
        world.load(domain)
        made, left_out = tasks_of(domain, options.full)
        tasks += [task for task, _ in made]
        solutions += [solution for _, solution in made]
        held_out = sum(task["split"] == "held_out" for task, _ in made)
        print(f"{domain}: {len(made) - held_out} to train, {held_out} held out, {len(left_out)} left out")
        for task_key, reason in left_out:
            print(f"left out: {task_key}: {reason}")
    options.to.mkdir(parents=True, exist_ok=True)
    for name, rows in (("tasks", tasks), ("solutions", solutions)):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (options.to / f"{name}.jsonl").write_text(text, encoding="utf-8")


def tasks_of(domain: str, full: bool) -> tuple[list[tuple[dict, dict]], list[tuple[str, str]]]:
    """Pairs of task and solution, and what is left out: key and reason."""
    splits = world.splits_of(domain)
    test, train = set(splits["test"]), set(splits["train"])
    made, left_out = [], []
    for number, task in world.tasks_of(domain).items():
        if not full and task.id not in test | train:
            continue
        task_key = f"tau2/{domain}/{number}"
        calls = world.gold_of(domain, task)
        reason = reason_against(domain, number, calls)
        if reason is not None:
            left_out.append((task_key, reason))
            continue
        # Telecom's ids begin with what does not work: [mms_issue]…
        topic = re.match(r"\[(\w+)\]", task.id)
        row = {
            "task_key": task_key,
            "env_key": f"tau2-{domain}",
            "prompt": world.prompt_of(domain, task),
            "split": "held_out" if task.id in test else "train",
            "template": f"tau2/{topic[1] if topic else domain}",
            "difficulty": len(calls),
            "env_variables": {"CURRENT_DATE": DATES[domain]} if domain in DATES else {},
        }
        made.append((row, {"task_key": task_key, "calls": calls}))
    return made, left_out


def reason_against(domain: str, number: str, calls: list[dict]) -> str | None:
    if world.grade_of_nothing(domain, number).reward >= 1:
        return "doing nothing is graded 1"
    episode = world.Episode(domain, number)
    for call in calls:
        episode.call(call["name"], call["arguments"])
    grade = episode.grade()
    if grade.reward != 1:
        return f"the gold solution is graded {grade.reward:g}: {world.explanation_of(grade)}"
    return None


if __name__ == "__main__":
    main()
