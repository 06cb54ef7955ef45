"""Drives a server with the openenv package's own clients and prints what they saw as one JSON object."""

import asyncio
import json
import sys

from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient


async def generic(url, task, token):
    seen = {}
    async with GenericEnvClient(base_url=url) as env:
        result = await env.reset(task_key=task, seed=7, episode_id="ep", unknown=1)
        seen["prompt"] = result.observation["prompt"]
        seen["task_key"] = result.observation["task_key"]
        seen["reward"] = result.reward
        listed = await env.step({"type": "list_tools"})
        seen["tools"] = [tool["name"] for tool in listed.observation["tools"]]
        good = await env.step({"type": "call_tool", "tool_name": "increment", "arguments": {}})
        seen["text"] = good.observation["result"]["data"]
        bad = await env.step({"type": "call_tool", "tool_name": "jump", "arguments": {}, "metadata": {"try": 1}})
        seen["error"] = bad.observation["error"]["message"]
        state = await env.state()
        seen["state"] = state if isinstance(state, dict) else state.model_dump()
        try:
            await env.step({"type": "fly"})
            seen["invalid"] = None
        except Exception as error:
            seen["invalid"] = str(error)
    return seen


async def tools(url, task):
    seen = {}
    async with MCPToolClient(base_url=url) as env:
        await env.reset(task_key=task)
        seen["tools"] = [[tool.name, bool(tool.description)] for tool in await env.list_tools()]
        seen["first"] = await env.call_tool("increment")
        seen["second"] = await env.call_tool("increment")
        state = await env.state()
        seen["steps"] = state.step_count
        try:
            await env.call_tool("refuse")
        except RuntimeError as error:
            seen["error"] = str(error)
    return seen


async def cut(url, task):
    """Plays on after the socket is cut: the client attaches a new socket to the session that it made over HTTP."""
    seen = {}
    async with MCPToolClient(base_url=url) as env:
        await env.reset(task_key=task)
        seen["before"] = await env.call_tool("increment")
        socket = env._ws
        socket.transport.abort()
        await asyncio.wait_for(socket.wait_closed(), 10)
        seen["detached"] = await env.call_tool("increment")
        for _ in range(100):
            try:
                seen["steps"] = (await env.state()).step_count
                break
            except Exception:
                # The server has not yet seen the end of the first socket.
                await asyncio.sleep(0.05)
        seen["another_socket"] = env._ws is not socket
        action = {"type": "call_tool", "tool_name": "increment", "arguments": {}}
        seen["after"] = (await env._send_and_receive({"type": "step", "data": action}))["data"]["observation"]["result"]["data"]
    return seen


async def main(url, task, token):
    seen = {
        "generic": await generic(url, task, token),
        "mcp": await tools(url, task),
        "cut": await cut(url, task),
    }
    print(json.dumps(seen))


asyncio.run(main(*sys.argv[1:4]))
