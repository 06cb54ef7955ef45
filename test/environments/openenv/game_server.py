"""A guessing game behind a server without tools: `gym` on the openenv package's own server, `http` on one that has no sockets."""

import os
import sys

import uvicorn

highest_default = 8
reset_reward = 0.0 if os.environ.get("GAME_RESET_REWARD") else None


class Game:
    """Guess a number; three tries. The seed chooses it."""

    def __init__(self):
        self.secret, self.left, self.highest = 1, 0, highest_default

    def begin(self, seed, highest):
        self.highest = int(highest or highest_default)
        self.secret, self.left = 1 + (seed or 0) % self.highest, 3
        return f"I think of a number from 1 to {self.highest}."

    def guess(self, number):
        self.left -= 1
        if number == self.secret:
            return "That is it.", 1.0, True
        hint = "higher" if number < self.secret else "lower"
        return f"No, {hint}.", 0.25, self.left == 0


def gym_app(places):
    from openenv.core.env_server.http_server import create_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    class GuessAction(Action):
        """Guesses the number."""

        number: int

    class GuessObservation(Observation):
        text: str = ""

    class GuessEnvironment(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self):
            self.game = Game()

        def reset(self, seed=None, episode_id=None, highest=None):
            return GuessObservation(text=self.game.begin(seed, highest), done=False, reward=reset_reward)

        def step(self, action, timeout_s=None, **kwargs):
            text, reward, done = self.game.guess(action.number)
            return GuessObservation(text=text, reward=reward, done=done)

        @property
        def state(self):
            return State()

    return create_app(
        GuessEnvironment, GuessAction, GuessObservation, env_name="guess", max_concurrent_envs=places
    )


def http_app():
    from fastapi import Body, FastAPI, Header, HTTPException
    from pydantic import BaseModel

    class GuessAction(BaseModel):
        """Guesses the number."""

        number: int

    app, game, current = FastAPI(), Game(), {}
    required = sys.argv[4] if len(sys.argv) > 4 else None

    def refuse(key):
        if required is not None and key != required:
            raise HTTPException(401, "no key")

    @app.get("/health")
    def health():
        return {"status": "healthy"}

    @app.get("/schema")
    def schema(x_key: str | None = Header(None)):
        refuse(x_key)
        return {"action": GuessAction.model_json_schema()}

    @app.post("/reset")
    def reset(data: dict = Body({}), x_key: str | None = Header(None)):
        refuse(x_key)
        text = game.begin(data.get("seed"), data.get("highest"))
        current.update(episode_id=data.get("episode_id"), step_count=0)
        return {"observation": {"text": text}, "reward": reset_reward, "done": False}

    @app.post("/step")
    def step(action: GuessAction = Body(embed=True), x_key: str | None = Header(None)):
        refuse(x_key)
        text, reward, done = game.guess(action.number)
        current["step_count"] += 1
        return {"observation": {"text": text}, "reward": reward, "done": done}

    @app.get("/state")
    def state(x_key: str | None = Header(None)):
        refuse(x_key)
        return current

    return app


if __name__ == "__main__":
    app = gym_app(int(sys.argv[2])) if sys.argv[3] == "gym" else http_app()
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
