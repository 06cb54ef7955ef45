"""
The MCP endpoints of all instances. Two FastMCP servers serve them; the gateway in front names the instance, keeps each session with its
own, and applies the faults of calls.
"""

import asyncio
import base64
import json
import re

from fastmcp import FastMCP
from fastmcp.utilities.types import Image
from booking_tools import booking_tools, without_output_schema
from control_plane import KEY

PATH = re.compile(r"^/([^/]+)/(mcp|api/v1/mcp)/?$")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def runner_tools():
    server = FastMCP("runner")
    tool = without_output_schema(server)

    @tool
    async def computer(action: str, text: str = "") -> Image | dict:
        """Uses the screen. `action`: screenshot, wait, cursor_position or type."""
        return Image(data=PIXEL, format="png") if action == "screenshot" else {"output": "X=683,Y=384"}

    # The booking server has a tool of this name, too, and a client lists that server first.
    @tool
    async def get_profile() -> dict:
        """The runner's own profile."""
        return {"name": "runner"}

    return server


class McpGateway:
    def __init__(self, service):
        self.service = service
        self.apps = {"mcp": booking_tools().http_app(path="/"), "api/v1/mcp": runner_tools().http_app(path="/")}
        self.instance_of_session = {}

    async def __call__(self, scope, receive, send):
        instance_id, endpoint = PATH.match(scope["path"]).groups()
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        if headers.get("authorization") != f"Bearer {KEY}":
            return await refuse(send, 401, "Invalid API key")
        instance = self.service.instances.running(instance_id)
        session = headers.get("mcp-session-id")
        if instance is None or (session is not None and self.instance_of_session.get(session) != (instance_id, endpoint)):
            return await refuse(send, 404, f"Instance '{instance_id}' is not running, or has no such session")
        body = await body_of(receive) if scope["method"] == "POST" else b""
        if endpoint == "mcp" and self.is_hidden(instance, body):
            return await refuse(send, 404, "Not Found")
        call = call_in(body)
        if call is not None:
            if self.service.faults["slow_call_s"] > 0:
                await asyncio.sleep(self.service.faults["slow_call_s"])
            if self.service.faults.strikes("fail_call"):
                return await refuse(send, 500, "Internal server error")
            self.service.log["calls"].append({"instance_id": instance_id, **call})
            if self.service.faults.strikes("drop_call_reply"):
                scope["reply"]["is_dropped"] = True

        async def sent(message):
            if message["type"] == "http.response.start":
                for name, value in message["headers"]:
                    if name.lower() == b"mcp-session-id":
                        self.instance_of_session[value.decode()] = (instance_id, endpoint)
            await send(message)

        # Both servers' paths begin at the endpoint.
        inner = {**scope, "path": "/", "raw_path": b"/", "fleet_instance": instance}
        await self.apps[endpoint](inner, replayed(body, receive) if body else receive, sent)

    def is_hidden(self, instance, body):
        """Whether the gate answers as if there were no such server."""
        faults = self.service.faults
        is_starting = self.service.clock.now() < instance.created + faults["app_starts_s"]
        return is_starting or (b'"tools/list"' in body and faults.strikes("hide_tools"))


async def body_of(receive):
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return body


def replayed(body, receive):
    """Gives the body that was read, and then what comes."""
    is_given = False

    async def next_message():
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message


def call_in(body):
    """The tool and arguments of a `tools/call`; None for any other message."""
    try:
        message = json.loads(body)
    except ValueError:
        return None
    if not isinstance(message, dict) or message.get("method") != "tools/call":
        return None
    params = message.get("params") or {}
    return {"tool": params.get("name"), "arguments": params.get("arguments") or {}}


async def refuse(send, status, detail):
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
