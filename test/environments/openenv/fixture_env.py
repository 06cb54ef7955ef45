"""A stateful environment on the openenv package's own server classes, for tests of other people's clients."""

import base64
import os
import sys
import time

import uvicorn
from fastmcp import FastMCP
from fastmcp.utilities.types import Image
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class FixtureEnvironment(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        server = FastMCP("fixture")
        self.count = 0
        self.explains = False
        self.episode = State()

        @server.tool
        def increment() -> str:
            """Adds one."""
            self.count += 1
            return str(self.count)

        @server.tool
        def add(a: int, b: int) -> dict:
            """Adds two numbers."""
            return {"sum": a + b}

        @server.tool
        def refuse() -> str:
            raise ValueError("repository x not found")

        @server.tool
        def picture() -> Image:
            """One pixel."""
            return Image(data=PIXEL, format="png")

        @server.tool
        def slow(seconds: float) -> str:
            """Sleeps."""
            time.sleep(seconds)
            return "slept"

        @server.tool
        def die() -> str:
            """Ends the server."""
            os._exit(3)

        if os.environ.get("FIXTURE_EXTRA_TOOL"):

            @server.tool
            def subtract(a: int, b: int) -> dict:
                """Takes one number from another."""
                return {"difference": a - b}

        super().__init__(server)

    def list_splits(self):
        return ["train", "hard"]

    def num_tasks(self, split):
        if split == "train" and os.environ.get("FIXTURE_WITHOUT_PAGES"):
            raise NotImplementedError
        return {"train": 1203, "hard": 2}[split]

    def get_task(self, split, index):
        if split == "hard":
            return {"question": f"hard {index}", "id": index, "difficulty": 3}
        return {"id": f"train-{index}", "prompt": f"Count to {index}."}

    def list_tasks(self, split):
        return [self.get_task(split, index) for index in range(1203)]

    def get_task_range(self, split, start=None, stop=None):
        return [self.get_task(split, index) for index in range(start, stop)]

    def reset(self, seed=None, episode_id=None, task_key=None, **kwargs):
        if task_key == "broken":
            raise RuntimeError("this task cannot be opened")
        self.count = 0
        self.explains = task_key == "explained"
        self.episode = State(episode_id=episode_id, step_count=0)
        reward = None if os.environ.get("FIXTURE_NO_REWARD") else 0.0
        return Observation(done=False, reward=reward, metadata={"prompt": f"task {task_key}", "seed": seed})

    async def step_async(self, action, timeout_s=None, **kwargs):
        observation = await super().step_async(action, timeout_s=timeout_s, **kwargs)
        self.episode.step_count += 1
        grades = not os.environ.get("FIXTURE_NO_REWARD")
        if grades and isinstance(action, CallToolAction) and isinstance(observation, CallToolObservation):
            observation.reward = float(self.count >= 2)
            if self.explains:
                observation.metadata["explanation"] = f"counted to {self.count} of 2"
        return observation

    def _step_impl(self, action, timeout_s=None, **kwargs):
        return Observation(done=False, reward=None)

    @property
    def state(self):
        return self.episode


if __name__ == "__main__":
    app = create_app(
        FixtureEnvironment, Action, Observation, env_name="fixture", max_concurrent_envs=int(sys.argv[2])
    )
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
