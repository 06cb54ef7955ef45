"""The clock of the service and the faults that a test asks for."""

import random
import time

RATES = (
    "drop_create_reply",
    "fail_create",
    "drop_call_reply",
    "fail_call",
    "drop_delete_reply",
    "fail_delete",
    "fail_verify",
    "verify_http",
    "verify_busy",
    "drop_reset_reply",
    "fail_reset",
    "hide_tools",
    "limit_polls",
    "judge_error",
    "result_none",
    "lock_while_verifying",
)
DEFAULTS = {
    **dict.fromkeys(RATES, 0.0),
    "seed": 0,
    "lock": False,
    "lock_ms": 0,
    "provision_s": 0.0,
    "instance_limit": 1000,
    "gated": True,
    "slow_call_s": 0.0,
    "app_starts_s": 0.0,
    "databases": 2,
}


class Clock:
    """Seconds since 1970. `advance` moves it forward, so that a test need not wait for a deadline."""

    def __init__(self):
        self.ahead = 0.0

    def now(self):
        return time.time() + self.ahead

    def advance(self, seconds):
        self.ahead += seconds


class Faults:
    def __init__(self):
        self.settings = dict(DEFAULTS)
        self.struck = dict.fromkeys(RATES, 0)
        self._seed_randoms()

    def __getitem__(self, name):
        return self.settings[name]

    def merge(self, patch):
        """A `seed` starts every sequence again."""
        self.settings.update(patch)
        if "seed" in patch:
            self._seed_randoms()

    def strikes(self, name):
        """Whether the fault hits this event. Each fault has its own sequence, so that one does not shift another."""
        rate = self.settings[name]
        if rate <= 0 or self.randoms[name].random() >= rate:
            return False
        self.struck[name] += 1
        return True

    def _seed_randoms(self):
        self.randoms = {name: random.Random(f"{self.settings['seed']}:{name}") for name in RATES}
