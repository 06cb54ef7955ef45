"""The routes of an instance under `/{instance}/api/v1/env`: its reset, its databases and their difference."""

import asyncio
import sqlite3
from datetime import datetime, timezone

from fastapi import APIRouter, Depends, HTTPException, Request
from fleet.instance.models import (
    DescribeResponse,
    HealthResponse,
    QueryRequest,
    QueryResponse,
    Resource,
    ResetRequest,
    ResetResponse,
)
from fleet.verifiers.local_executor import diff_dbs
from control_plane import RUNNER_TOKEN, drop_reply
from instances import DATABASES

# After the first calls of an episode that did not wait for the answer.
LATE_RESET_S = 1.0


def instance_routes(service):
    def require_token(request: Request):
        """A gate answers as if there were nothing behind it."""
        if service.faults["gated"] and request.headers.get("x-runner-token") != RUNNER_TOKEN:
            raise HTTPException(404, "Not Found")

    routes = APIRouter(prefix="/{instance_id}/api/v1/env", dependencies=[Depends(require_token)])

    def running(instance_id):
        instance = service.instances.running(instance_id)
        if instance is None:
            raise HTTPException(404, f"Instance '{instance_id}' is not running")
        return instance

    def path_of(instance_id, name):
        instance = running(instance_id)
        if name not in DATABASES:
            raise HTTPException(404, f"Resource '{name}' not found")
        return instance.path(name)

    @routes.get("/health")
    async def health(instance_id: str) -> HealthResponse:
        running(instance_id)
        return HealthResponse(status="healthy", timestamp=datetime.now(timezone.utc).isoformat(), service="manager")

    @routes.post("/reset")
    async def reset(instance_id: str, request: Request, asked: ResetRequest = None) -> ResetResponse:
        instance = running(instance_id)
        if service.faults.strikes("drop_reset_reply"):
            drop_reply(request)
            asyncio.get_running_loop().call_later(LATE_RESET_S, service.instances.fill, instance)
            return ResetResponse(success=True, message="")
        if instance.locks.holds > 0 or service.faults.strikes("fail_reset"):
            raise HTTPException(500, "database is locked")
        service.instances.fill(instance)
        return ResetResponse(success=True, message="Environment reset successfully")

    @routes.get("/resources")
    async def resources(instance_id: str) -> list[Resource]:
        running(instance_id)
        return [Resource(name=name, type="sqlite", mode="ro" if name == "seed" else "rw") for name in DATABASES[: service.faults["databases"]]]

    @routes.get("/resources/sqlite/{name}/describe")
    async def describe(instance_id: str, name: str) -> DescribeResponse:
        path = path_of(instance_id, name)
        try:
            return DescribeResponse(success=True, resource_name=name, tables=tables_of(path), message="Schema retrieved")
        except sqlite3.Error as error:
            message = f"Failed to describe database: {error}"
            return DescribeResponse(success=False, resource_name=name, error=str(error), message=message)

    @routes.post("/resources/sqlite/{name}/query")
    async def query(instance_id: str, name: str, asked: QueryRequest) -> QueryResponse:
        is_written = name == "current" and asked.read_only is False
        try:
            return answer_of(path_of(instance_id, name), asked, is_written)
        except sqlite3.Error as error:
            return QueryResponse(success=False, error=str(error), message=f"Query failed: {error}")

    @routes.post("/diff/structured")
    async def diff(instance_id: str, asked: dict = None) -> dict:
        instance = running(instance_id)
        ignored = (asked or {}).get("ignore_config") or {}
        paths = [instance.path(name) for name in DATABASES]
        fields = set(ignored.get("fields") or [])
        of_tables = ignored.get("table_fields") or {}
        try:
            tables = [each["name"] for each in tables_of(paths[1])]
        except sqlite3.Error as error:
            return {"success": False, "diff": {}, "message": f"Failed to generate structured diff: {error}"}
        table_fields = {table: fields | set(of_tables.get(table) or []) for table in tables}
        return diff_dbs(*paths, set(ignored.get("tables") or []), table_fields)

    return routes


def open_database(path, is_written=False):
    return sqlite3.connect(f"file:{path}?mode={'rw' if is_written else 'ro'}", uri=True, timeout=0)


def answer_of(path, asked, is_written):
    db = open_database(path, is_written)
    try:
        cursor = db.execute(asked.query, asked.args or [])
        rows = [list(row) for row in cursor.fetchall()] if cursor.description else None
        db.commit()
        return QueryResponse(
            success=True,
            columns=[each[0] for each in cursor.description] if cursor.description else None,
            rows=rows,
            rows_affected=cursor.rowcount if cursor.rowcount > 0 else None,
            last_insert_id=cursor.lastrowid if is_written else None,
            message="Query executed successfully",
        )
    finally:
        db.close()


def tables_of(path):
    db = open_database(path)
    try:
        names = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
        return [
            {
                "name": name,
                "sql": sql,
                "columns": [
                    {"name": column, "type": kind, "notnull": bool(notnull), "default_value": default, "primary_key": pk > 0, "pk": pk}
                    for _, column, kind, notnull, default, pk in db.execute(f'PRAGMA table_info("{name}")')
                ],
            }
            for name, sql in names
        ]
    finally:
        db.close()
