"""The instances of the service: their states, deadlines, files and rows in the SDK's form."""

import hashlib
import os
import shutil
from datetime import datetime, timezone

from fleet.models import InstanceResponse
from world import DATA_KEY, DEFAULT_VARIABLES, DatabaseLocks

DATABASES = ("seed", "current")


def iso(seconds):
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).isoformat()


class Instance:
    def __init__(self, instance_id, asked, folder, now, ready_at):
        self.id = instance_id
        self.asked = asked
        self.folder = folder
        self.created = self.updated = self.beat = now
        self.ready_at = ready_at
        self.ended = None
        self.version = asked.env_version
        self.data_version = asked.data_version
        self.variables = {**DEFAULT_VARIABLES, **(asked.env_variables or {})}
        self.locks = DatabaseLocks([self.path(name) for name in DATABASES])
        self.is_running = False

    def path(self, name):
        return os.path.join(self.folder, f"{name}.sqlite")

    @property
    def status(self):
        if self.ended is not None:
            return "stopped"
        return "running" if self.is_running else "pending"

    @property
    def heartbeat_region(self):
        """Where its heartbeats are taken; None without an interval."""
        return None if self.asked.heartbeat_interval is None else self.asked.region

    @property
    def deadline(self):
        """When its next heartbeat is due; None without an interval."""
        interval = self.asked.heartbeat_interval
        return None if interval is None else self.beat + interval

    def end_due(self):
        """When it ends by itself; None if never."""
        ttl = self.asked.ttl_seconds
        ends = [each for each in (self.deadline, None if ttl is None else self.created + ttl) if each is not None]
        return min(ends, default=None)


class Instances:
    def __init__(self, folder, seeds, faults, clock):
        self.folder, self.seeds, self.faults, self.clock = folder, seeds, faults, clock
        self.all = {}
        self.by_request = {}
        self.base_url = ""

    def create(self, asked, request_id):
        """The instance exists, and its request id is known, from here on; it may still be provisioned."""
        now = self.clock.now()
        instance_id = hashlib.sha256(f"instance {len(self.all)}".encode()).hexdigest()[:12]
        folder = os.path.join(self.folder, instance_id)
        os.makedirs(folder, exist_ok=True)
        instance = Instance(instance_id, asked, folder, now, now + self.faults["provision_s"])
        self.all[instance_id] = instance
        if request_id:
            self.by_request[request_id] = instance_id
        self.fill(instance)
        self.sweep()
        return instance

    def fill(self, instance):
        """Gives it the databases of its data version, as at its start."""
        if instance.ended is not None:
            return
        for name in DATABASES:
            self.seeds.copy(instance.data_version, instance.path(name))
        if self.faults["lock"]:
            instance.locks.take()

    def sweep(self):
        """Applies what time has brought: provisioned instances run; those past a deadline end."""
        now = self.clock.now()
        for instance in self.all.values():
            if instance.ended is not None:
                continue
            due = instance.end_due()
            if due is not None and now >= due:
                self.end(instance, due)
            elif not instance.is_running and now >= instance.ready_at:
                instance.is_running, instance.updated = True, now

    def end(self, instance, at=None):
        if instance.ended is not None:
            return
        instance.ended = instance.updated = self.clock.now() if at is None else at
        instance.locks.drop()
        shutil.rmtree(instance.folder, ignore_errors=True)

    def find(self, instance_id):
        self.sweep()
        return self.all.get(instance_id)

    def running(self, instance_id):
        """None for one that is unknown, is provisioned, or has ended."""
        instance = self.find(instance_id)
        return instance if instance is not None and instance.status == "running" else None

    def chosen(self, status=None, run_id=None, region=None):
        self.sweep()
        return [
            each
            for each in self.all.values()
            if status in (None, each.status) and run_id in (None, each.asked.run_id) and region in (None, each.asked.region)
        ]

    def open_ones(self):
        return [each for each in self.chosen() if each.ended is None]

    def lock_all(self, locked):
        for each in self.open_ones():
            each.locks.take() if locked else each.locks.release()

    def row(self, instance):
        root = f"{self.base_url}/{instance.id}/"
        api = f"{root}api/v1/env"
        return InstanceResponse(
            instance_id=instance.id,
            env_key=instance.asked.env_key,
            version=instance.version,
            status=instance.status,
            subdomain=instance.id,
            created_at=iso(instance.created),
            updated_at=iso(instance.updated),
            terminated_at=iso(instance.ended),
            team_id="team_test",
            region=instance.asked.region,
            env_variables=instance.variables,
            data_key=DATA_KEY,
            data_version=instance.data_version,
            urls={
                "root": root,
                "app": [root],
                "api": f"{root}raw",
                "health": f"{api}/health",
                "manager": {
                    "api": api,
                    "docs": f"{api}/docs",
                    "reset": f"{api}/reset",
                    "diff": f"{api}/diff",
                    "snapshot": f"{api}/snapshot",
                    "execute_verifier_function": f"{api}/execute_verifier_function",
                    "execute_verifier_function_with_upload": f"{api}/execute_verifier_function_with_upload",
                },
            },
            health=instance.status == "running",
            run_id=instance.asked.run_id,
            heartbeat_interval=instance.asked.heartbeat_interval,
            heartbeat_region=instance.heartbeat_region,
        )

    def log_row(self, instance):
        return {
            "instance_id": instance.id,
            "status": instance.status,
            "run_id": instance.asked.run_id,
            "env_key": instance.asked.env_key,
            "env_version": instance.version,
            "data_version": instance.data_version,
            "env_variables": instance.variables,
            "region": instance.asked.region,
            "ttl_seconds": instance.asked.ttl_seconds,
            "heartbeat_interval": instance.asked.heartbeat_interval,
            "databases": {name: instance.path(name) for name in DATABASES},
        }
