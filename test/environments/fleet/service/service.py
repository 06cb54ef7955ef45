"""
A service that answers as Fleet's does, for tests: control plane, instances with their databases and MCP tools, and verifiers.

    python service.py --dir DIR

listens on a free port of 127.0.0.1 and prints `READY http://127.0.0.1:PORT`. `POST /control` sets faults (see `faults.py`), and
`advance_s` and `expire_all`; `GET /control` gives the settings, the counts of faults and the log.
"""

import argparse
import asyncio
import logging
import os
import socket
from contextlib import asynccontextmanager

import uvicorn
from control_plane import control_plane
from fastapi import FastAPI, HTTPException
from faults import DEFAULTS, Clock, Faults
from instance_routes import instance_routes
from instances import Instances
from mcp_gateway import PATH, McpGateway
from verifiers import Verifiers
from world import Seeds

ACTIONS = ("advance_s", "expire_all")


class Service:
    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.clock, self.faults = Clock(), Faults()
        self.log = {"creates": [], "calls": [], "executions": [], "uploads": [], "heartbeats": []}
        self.instances = Instances(folder, Seeds(folder), self.faults, self.clock)
        self.verifiers = Verifiers(self.instances, self.faults, self.log)

    def control(self, patch):
        """Raises `KeyError` for a name that is no setting; then nothing is changed."""
        for name in patch:
            if name not in (*DEFAULTS, *ACTIONS):
                raise KeyError(name)
        self.clock.advance(patch.get("advance_s", 0))
        if patch.get("expire_all"):
            for each in self.instances.open_ones():
                self.instances.end(each)
        was_locked = self.faults["lock"]
        self.faults.merge({name: value for name, value in patch.items() if name not in ACTIONS})
        if self.faults["lock"] != was_locked:
            self.instances.lock_all(self.faults["lock"])

    def state(self):
        instances = [self.instances.log_row(each) for each in self.instances.chosen()]
        counts = {name: len(entries) for name, entries in self.log.items()}
        counts["open_instances"] = sum(each["status"] != "stopped" for each in instances)
        return {"settings": self.faults.settings, "faults": self.faults.struck, "counts": counts, **self.log, "instances": instances}


def application(service):
    gateway = McpGateway(service)

    @asynccontextmanager
    async def lifespan(_):
        await service.verifiers.pool.start()
        apps = gateway.apps.values()
        first, second = (app.router.lifespan_context(app) for app in apps)
        async with first, second:
            yield
        await service.verifiers.pool.stop()

    api = FastAPI(lifespan=lifespan)
    api.include_router(control_plane(service))

    @api.get("/health")
    async def health():
        return {"status": "healthy"}

    @api.get("/control")
    async def state():
        return service.state()

    @api.post("/control")
    async def control(patch: dict):
        try:
            service.control(patch)
        except KeyError as error:
            raise HTTPException(400, f"no setting is called {error}") from error
        return service.faults.settings

    api.include_router(instance_routes(service))

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return await api(scope, receive, send)
        reply = scope["reply"] = {"is_dropped": False}
        connection = send.__self__.transport

        async def sent(message):
            if not reply["is_dropped"]:
                await send(message)

        handler = gateway if PATH.match(scope["path"]) else api
        await handler(scope, receive, sent)
        if reply["is_dropped"]:
            connection.abort()
            # The server must see the lost connection before it misses an answer.
            await asyncio.sleep(0.01)

    return app


class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(f"READY http://127.0.0.1:{sockets[0].getsockname()[1]}", flush=True)


def main():
    # Errors of tools and lost connections are what tests ask for.
    for name in ("mcp", "fastmcp"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    # Without the protocol, asyncio leaves Nagle's delay of 40 ms on each answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    service = Service(os.path.abspath(parser.parse_args().dir))
    service.instances.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(application(service), log_level="warning", http="h11", ws="none", timeout_graceful_shutdown=1)
    Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
