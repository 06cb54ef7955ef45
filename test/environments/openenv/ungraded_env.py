"""Servers of the openenv package that grade nothing: a gym-style one without tools, and one with tools and no reward."""

import sys

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.types import Action, Observation, State


class GymEnvironment(Environment):
    """Takes actions of its own kind instead of tool calls."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        return Observation(done=False, reward=0.0)

    def step(self, action, timeout_s=None, **kwargs):
        return Observation(done=False, reward=1.0)

    @property
    def state(self):
        return State()


class RewardlessEnvironment(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        server = FastMCP("rewardless")

        @server.tool
        def look() -> str:
            """Looks around."""
            return "a room"

        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **kwargs):
        return Observation(done=False, reward=None)

    def _step_impl(self, action, timeout_s=None, **kwargs):
        return Observation(done=False, reward=None)

    @property
    def state(self):
        return State()


if __name__ == "__main__":
    environment = {"gym": GymEnvironment, "rewardless": RewardlessEnvironment}[sys.argv[3]]
    app = create_app(
        environment, Action, Observation, env_name=sys.argv[3], max_concurrent_envs=int(sys.argv[2])
    )
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
