"""The routes under `/v1`: instances, environments, account and verifiers."""

import asyncio
import base64
import binascii

from fastapi import APIRouter, Depends, HTTPException, Request
from fleet.models import (
    AccountResponse,
    Environment,
    HeartbeatResponse,
    InstanceRequest,
    InstanceResponse,
    VerifiersCheckResponse,
    VerifiersExecuteRequest,
    VerifiersExecuteResponse,
)
from instances import iso
from verifiers import BadBundle, BadArguments
from world import DATA_KEY, DATA_VERSIONS, ENV_KEY, ENV_VERSIONS

KEY = "test-key"
RUNNER_TOKEN = "runner-token-of-the-test"
REGIONS = ["us-west-1", "us-east-1", "eu-west-2"]
ENVIRONMENT = Environment(
    env_key=ENV_KEY,
    name="Harbour",
    description="A site on which a user finds and books hotels.",
    default_version=ENV_VERSIONS[-1],
    versions={version: version for version in ENV_VERSIONS},
)


def require_key(request: Request):
    if request.headers.get("authorization") != f"Bearer {KEY}":
        raise HTTPException(401, "Invalid API key")


def drop_reply(request):
    """What was done stays done, and the connection ends without an answer."""
    request.scope["reply"]["is_dropped"] = True


def checked(asked: InstanceRequest):
    """With the defaults filled in. Raises the service's refusals."""
    asked.region = asked.region or REGIONS[0]
    if asked.region not in REGIONS:
        raise HTTPException(400, f"Region {asked.region} not supported. Please use {REGIONS}")
    if asked.env_key != ENV_KEY:
        raise HTTPException(400, f"Environment '{asked.env_key}' not found")
    asked.env_version = asked.env_version or ENV_VERSIONS[-1]
    if asked.env_version not in ENV_VERSIONS:
        raise HTTPException(400, f"Version '{asked.env_version}' not found for environment '{ENV_KEY}'")
    if asked.data_key not in (None, DATA_KEY):
        raise HTTPException(400, f"Data key '{asked.data_key}' not found for environment '{ENV_KEY}'")
    asked.data_version = asked.data_version or DATA_VERSIONS[-1]
    if asked.data_version not in DATA_VERSIONS:
        raise HTTPException(400, f"Version '{asked.data_version}' not found for data key '{DATA_KEY}'")
    interval = asked.heartbeat_interval
    if interval is not None and not 30 <= interval <= 3600:
        raise HTTPException(422, "heartbeat_interval must be between 30 and 3600 seconds")
    return asked


def control_plane(service):
    routes = APIRouter(prefix="/v1", dependencies=[Depends(require_key)])
    instances, faults, log = service.instances, service.faults, service.log

    def known(instance_id):
        instance = instances.find(instance_id)
        if instance is None:
            raise HTTPException(404, f"Instance '{instance_id}' not found")
        return instance

    @routes.post("/env/instances")
    async def create(asked: InstanceRequest, request: Request) -> InstanceResponse:
        request_id = request.headers.get("x-request-id")
        entry = {"request_id": request_id, "run_id": asked.run_id, "instance_id": None, "duplicate": False}
        log["creates"].append(entry)
        if faults.strikes("fail_create"):
            raise HTTPException(500, "Internal server error")
        earlier = instances.by_request.get(request_id)
        if earlier is not None:
            entry.update(instance_id=earlier, duplicate=True)
            message = f"Request id was already used to create instance {earlier}"
            raise HTTPException(409, {"error": "duplicate_request_id", "instance_id": earlier, "message": message})
        asked = checked(asked)
        count, limit = len(instances.open_ones()), faults["instance_limit"]
        if count >= limit:
            message = f"You have {count} running instances out of a maximum of {limit}. The instance limit is reached."
            detail = {"error_type": "instance_limit_exceeded", "message": message}
            raise HTTPException(403, {**detail, "running_instances": count, "instance_limit": limit})
        instance = instances.create(asked, request_id)
        entry["instance_id"] = instance.id
        if faults.strikes("drop_create_reply"):
            drop_reply(request)
            return instances.row(instance)
        answers_by = instance.ready_at
        if asked.max_wait_seconds is not None:
            answers_by = min(answers_by, instance.created + asked.max_wait_seconds)
        while instance.status == "pending" and service.clock.now() < answers_by:
            await asyncio.sleep(0.02)
            instances.sweep()
        instances.sweep()
        return instances.row(instance)

    @routes.get("/env/instances")
    async def listed(status: str = None, run_id: str = None, region: str = None) -> list[InstanceResponse]:
        return [instances.row(each) for each in instances.chosen(status, run_id, region)]

    @routes.delete("/env/instances/batch")
    async def delete_batch(request: Request, run_id: str = None) -> list[InstanceResponse]:
        if run_id is None:
            raise HTTPException(400, "At least one of run_id or profile_id must be provided")
        if faults.strikes("fail_delete"):
            raise HTTPException(500, "Internal server error")
        ended = [each for each in instances.chosen(run_id=run_id) if each.ended is None]
        for each in ended:
            instances.end(each)
        if faults.strikes("drop_delete_reply"):
            drop_reply(request)
        return [instances.row(each) for each in ended]

    @routes.get("/env/instances/{instance_id}")
    async def one(instance_id: str) -> InstanceResponse:
        if faults.strikes("limit_polls"):
            raise HTTPException(429, "Rate limit exceeded: too many instance requests")
        return instances.row(known(instance_id))

    @routes.delete("/env/instances/{instance_id}")
    async def delete(instance_id: str, request: Request) -> InstanceResponse:
        if faults.strikes("fail_delete"):
            raise HTTPException(500, "Internal server error")
        instance = known(instance_id)
        instances.end(instance)
        if faults.strikes("drop_delete_reply"):
            drop_reply(request)
        return instances.row(instance)

    @routes.post("/env/instances/{instance_id}/heartbeat")
    async def heartbeat(instance_id: str, asked: dict = None) -> HeartbeatResponse:
        region = (asked or {}).get("region")
        log["heartbeats"].append({"instance_id": instance_id, "region": region})
        instance = known(instance_id)
        if region != instance.heartbeat_region:
            raise HTTPException(404, f"Instance '{instance_id}' has no heartbeats in region {region}")
        if instance.ended is not None:
            raise HTTPException(404, f"Instance '{instance_id}' is not running")
        interval = instance.asked.heartbeat_interval
        instance.beat = service.clock.now()
        return HeartbeatResponse(
            success=True,
            instance_id=instance_id,
            last_heartbeat=None if interval is None else iso(instance.beat),
            deadline_timestamp=instance.deadline,
            interval_seconds=interval,
        )

    @routes.get("/env/")
    async def environments() -> list[Environment]:
        return [ENVIRONMENT]

    @routes.get("/env/{key}")
    async def environment(key: str) -> Environment:
        if key != ENV_KEY:
            raise HTTPException(404, f"Environment '{key}' not found")
        return ENVIRONMENT

    @routes.get("/regions")
    async def regions() -> list[str]:
        return REGIONS

    @routes.get("/account")
    async def account() -> AccountResponse:
        count = len(instances.open_ones())
        return AccountResponse(team_id="team_test", team_name="Test", instance_limit=faults["instance_limit"], instance_count=count)

    @routes.get("/runner-auth/token")
    async def runner_token() -> dict:
        if not faults["gated"]:
            raise HTTPException(404, "No runner token is configured")
        return {"token": RUNNER_TOKEN}

    @routes.get("/verifiers/check")
    async def check(sha256: str) -> VerifiersCheckResponse:
        return VerifiersCheckResponse(success=service.verifiers.has(sha256))

    @routes.post("/verifiers/execute")
    async def execute(asked: VerifiersExecuteRequest) -> VerifiersExecuteResponse:
        if faults.strikes("verify_busy"):
            raise HTTPException(504, "Gateway Timeout")
        if faults.strikes("verify_http"):
            raise HTTPException(500, "Internal server error")
        try:
            bundle = None if asked.bundle is None else base64.b64decode(asked.bundle, validate=True)
            args = None if asked.args is None else base64.b64decode(asked.args, validate=True)
            return await service.verifiers.execute(asked, bundle, args)
        except (BadBundle, BadArguments, binascii.Error) as error:
            raise HTTPException(getattr(error, "status", 400), str(error)) from error

    return routes
