"""Writes tasks.jsonl and demonstrations.jsonl, the same each time.

The demonstrations are poor play: each guess is drawn from all numbers that the hints leave.
"""

import argparse
import json
import pathlib
import random

from server import Move, TextArenaEnvironment, options

train, held_out = 2048, 256


def play(game, player):
    env = TextArenaEnvironment()
    shown = env.reset(game=game)
    messages = [{"role": "user", "content": shown.text}]
    low, high = options["min_number"], options["max_number"]
    while True:
        guess = player.randint(low, high)
        call = {"name": "act", "arguments": {"move": f"[{guess}]"}}
        text = f"<tool_call>{json.dumps(call, separators=(',', ':'))}</tool_call>"
        messages.append({"role": "assistant", "content": text})
        shown = env.step(Move(move=f"[{guess}]"))
        if shown.done:
            return messages, shown.reward
        messages.append({"role": "tool", "content": shown.text})
        if "higher" in shown.text:
            low = guess + 1
        else:
            high = guess - 1


def task(number):
    split = "train" if number < train else "held_out"
    return {"task_key": f"guess-{number}", "env_key": "guess", "prompt": "", "reset": {"game": number}, "split": split}


def write(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", type=pathlib.Path, default=pathlib.Path(__file__).parent / "data")
    parser.add_argument("--demonstrations", type=int, default=6000)
    flags = parser.parse_args()
    flags.to.mkdir(exist_ok=True)
    write(flags.to / "tasks.jsonl", map(task, range(train + held_out)))
    player = random.Random(1)
    # Of games that no task is.
    games = [play(1_000_000 + number, player) for number in range(flags.demonstrations)]
    rows = [{"kind": "player", "env_key": "guess", "messages": messages} for messages, _ in games]
    write(flags.to / "demonstrations.jsonl", rows)
    won = sum(reward >= 1 for _, reward in games) / len(games)
    print(f"{train} + {held_out} tasks; {len(games)} demonstrations, of which {won:.0%} win")
