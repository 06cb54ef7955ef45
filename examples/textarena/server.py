"""A single-player game of TextArena behind the server of the openenv package.

TextArena shows texts, takes a move as text, and rewards the game's end. This file passes them on.
"""

import argparse
import importlib.metadata
import threading

import textarena
import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field

# "-raw" shows each message once; other variants repeat the whole history at every move. TextArena counts turns from 0, so
# there are 5 guesses.
game_id, options = "GuessTheNumber-v0-raw", {"min_number": 1, "max_number": 20, "max_turns": 4}

# TextArena draws the game from Python's global random numbers, and each session has its own thread.
drawing = threading.Lock()


class Move(Action):
    """Makes a move."""

    move: str = Field(description="as the rules of the game say, for example [5]")


class Shown(Observation):
    text: str = ""


class TextArenaEnvironment(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        self.game = textarena.make(game_id, **options)
        self.now = State()

    def reset(self, seed=None, episode_id=None, game=None):
        """`game`, which a task names in its `reset`, chooses the game; without it `seed` does."""
        with drawing:
            self.game.reset(num_players=1, seed=seed if game is None else game)
        self.now = State(episode_id=episode_id, step_count=0)
        return Shown(text=self.messages(), reward=0.0, done=False)

    def step(self, action, timeout_s=None, **kwargs):
        done, _ = self.game.step(action.move)
        self.now.step_count += 1
        if not done:
            return Shown(text=self.messages(), reward=0.0, done=False)
        rewards, info = self.game.close()
        return Shown(text=info[0]["reason"], reward=float(rewards[0]), done=True)

    def messages(self):
        """What the game has said since the last move."""
        _, messages = self.game.get_observation()
        return "\n".join(text for sender, text, _ in messages if sender == textarena.GAME_ID)

    @property
    def state(self):
        return self.now

    def get_metadata(self):
        version = importlib.metadata.version("textarena")
        return EnvironmentMetadata(name=game_id, description=f"{game_id} {options}", version=f"{version} {options}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--places", type=int, default=64, help="games at once")
    flags = parser.parse_args()
    app = create_app(TextArenaEnvironment, Move, Shown, env_name="textarena", max_concurrent_envs=flags.places)
    print(f"{game_id} is played on http://127.0.0.1:{flags.port}", flush=True)
    uvicorn.run(app, host="127.0.0.1", port=flags.port, log_level="warning")
