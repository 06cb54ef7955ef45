"""Fleet's own client on the service, with its tasks and raw MCP sessions. Each drive takes `--url URL --tasks DIR`."""

import argparse
import json
import os

import httpx
from fleet import Fleet

KEY = "test-key"
MCP_HEADERS = {"Authorization": f"Bearer {KEY}", "Accept": "application/json, text/event-stream"}


class Drive:
    def __init__(self, url, tasks):
        self.url = url
        self.http = httpx.Client(timeout=30)
        self.fleet = Fleet(api_key=KEY, base_url=url)
        self.tasks = self.fleet.load_tasks_from_file(os.path.join(tasks, "tasks.json"))
        self.rows = {name: self._rows(os.path.join(tasks, f"{name}.jsonl")) for name in ("solutions", "wrong")}

    def _rows(self, path):
        with open(path) as file:
            return {row["task_key"]: row for row in map(json.loads, file)}

    def control(self, **patch):
        self.http.post(f"{self.url}/control", json=patch).raise_for_status()

    def state(self):
        return self.http.get(f"{self.url}/control").json()

    def make(self, task, **more):
        return self.fleet.make(task.env_key, data_key=task.data_key, env_variables=task.env_variables, **more)

    def session(self, env, **more):
        return McpSession(self.http, env, **more)

    def play(self, env, row):
        """Carries out the calls of a solution. Raises when one fails."""
        session = self.session(env)
        for each in row["calls"]:
            text = session.call(each["name"], **each["arguments"])
            if not isinstance(text, str) or text.startswith("error"):
                raise AssertionError((row["task_key"], each, text))


class McpSession:
    """Raw messages, because a client of FastMCP ends with its first lost answer."""

    def __init__(self, http, env, headers=MCP_HEADERS):
        self.http, self.url, self.headers, self.number = http, f"{env.urls.root}mcp", dict(headers), 1
        facts = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "drive", "version": "1"}}
        self.opened = self.post("initialize", facts)
        self.headers["Mcp-Session-Id"] = self.opened.headers.get("mcp-session-id", "")
        if self.opened.status_code == 200:
            note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            self.http.post(self.url, json=note, headers=self.headers).raise_for_status()

    def post(self, method, params):
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        return self.http.post(self.url, json=message, headers=self.headers)

    def call(self, name, /, **arguments):
        """The text, with "error: " before one of a failed tool; the status of a refusal; or what broke the connection."""
        try:
            answer = self.post("tools/call", {"name": name, "arguments": arguments})
        except httpx.HTTPError as error:
            return type(error).__name__
        if answer.status_code != 200:
            return answer.status_code
        [data] = [line[len("data: ") :] for line in answer.text.splitlines() if line.startswith("data: ")]
        result = json.loads(data)["result"]
        return ("error: " if result["isError"] else "") + result["content"][0]["text"]


def refusal(action):
    try:
        action()
    except Exception as error:
        return {"type": type(error).__name__, "message": str(error), **{k: v for k, v in vars(error).items() if v is not None}}
    return None


def run(part):
    """Calls it with a drive, and prints what it gives as a line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--tasks", required=True)
    asked = parser.parse_args()
    print(json.dumps(part(Drive(asked.url, asked.tasks))))
