"""Whatever the document about the API allows, or does not, is answered as the document says.

Requests are generated from our own OpenAPI document (schemathesis), the same ones every time, and meet a broker in
which there is something to find: half of them name what is there."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
import trio
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from stompbroker.management.endpoints import ENDPOINTS
from stompbroker.management.openapi import openapi_document
from tests.management.asker import API, asking
from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    import httpx
    from schemathesis import Case
    from schemathesis.schemas import APIOperation

    from stompbroker.management.endpoints import Endpoint
    from tests.management.asker import Asker


EXAMPLES = 10
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
BASE_URL = "http://localhost:8613"
SCHEMA = schemathesis.openapi.from_dict(openapi_document())
FUZZING = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    # To shrink would ask again, of a broker that is another by then.
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@asynccontextmanager
async def inhabited_broker(directory: Path, role: str | None) -> AsyncIterator[tuple[Asker, dict[str, str]]]:
    """With a bit of everything, and what of that can be named in a path; asked by somebody with this role, or without
    login."""
    auth: tuple[str, str] | None = None
    login: dict[str, Any] = {}
    if role is not None:
        add_user(directory / "users.toml", role, roles=[role])
        add_user(directory / "users.toml", "app", read=[">"], write=[">"])
        auth, login = (role, PASSWORD), {"login": "app", "passcode": PASSWORD}
    async with running_broker(store_in=directory) as broker, asking(broker, auth=auth) as ask:
        durable = await broker.client(client_id="billing", **login)
        await durable.subscribe(ack="client-individual", durable_subscription_name="orders")
        await (await broker.client(**login)).subscribe("/topic/b.*", ack="client")
        publisher = await broker.client(**login)
        await publisher.publish(b"1", b"2", b"3", retain="set")
        await publisher.publish(b"4", destination="/topic/b.c")
        await publisher.sync()
        first, second, _ = await durable.next_messages(3)
        await durable.send("NACK", id=first.headers["ack"], requeue="false", reason="no")
        await durable.send("NACK", id=second.headers["ack"], delay="3600000")
        await durable.sync()
        await broker.settle()
        message_id = second.headers["message-id"]
        yield ask, {"name": "a", "topic": "a", "id": "", "message_id": message_id, "offset": "0"}


async def known_in(endpoint: Endpoint, ask: Asker, known: Mapping[str, str]) -> dict[str, str]:
    """For the path of this endpoint."""
    if "id" in endpoint.in_path:
        kind = "connections" if "connections" in endpoint.path else "subscriptions"
        listed = await ask.get(f"/{kind}")
        return {"id": str(listed[kind][0]["id"])}
    return {name: known[name] for name in endpoint.in_path}


def can_be_wrong(endpoint: Endpoint) -> bool:
    """Whether there is anything in its requests that the document does not allow; in a path every text is."""
    in_path = any(param.kind is not str for param in endpoint.in_path.values())
    return in_path or bool(endpoint.in_query or endpoint.in_body)


async def ask_for(case: Case[Any], ask: Asker) -> httpx.Response:
    request = case.as_transport_kwargs(base_url=BASE_URL)
    request.pop("cookies", None)  # we have none
    # Who asks is decided by the test; a generated login would be refused.
    request["headers"] = {name: value for name, value in request["headers"].items() if name.lower() != "authorization"}
    if "data" in request and not isinstance(request["data"], dict):
        request["content"] = request.pop("data")
    return await ask.client.request(**request)


def fuzz(operation: APIOperation[Any, Any, Any, Any], mode: GenerationMode, ask: Asker, known: dict[str, str]) -> None:
    """In a thread, since what is generated is synchronous; requests are made in trio's."""
    anything = operation.as_strategy(generation_mode=mode)
    if known:
        anything = anything | operation.as_strategy(generation_mode=mode, path_parameters=known)
    checks = [*CHECKS, negative_data_rejection] if mode.is_negative else CHECKS

    @FUZZING
    @given(case=anything)
    def check(case: Case[Any]) -> None:
        response = trio.from_thread.run(ask_for, case, ask)
        case.validate_response(response, checks=checks)

    check()


@pytest.mark.parametrize("role", [None, "viewer", "operator"])
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.call)
async def test_whatever_is_asked_the_answer_is_in_the_document(
    endpoint: Endpoint, role: str | None, store_directory: Path
) -> None:
    operation = SCHEMA[f"{API}{endpoint.path}"][endpoint.method]
    async with inhabited_broker(store_directory, role) as (ask, known):
        # What is wrong with a request is the same for everybody.
        for mode in (GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if role is None else [])):
            if mode.is_negative and not can_be_wrong(endpoint):
                continue
            await trio.to_thread.run_sync(fuzz, operation, mode, ask, await known_in(endpoint, ask, known))
        assert (await ask.client.get("/health/ready")).status_code == 200


def test_the_document_is_complete_and_has_no_loose_ends() -> None:
    document = openapi_document()
    names: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                names.append(value["$ref"].removeprefix("#/components/schemas/"))
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(document)
    assert set(names) <= document["components"]["schemas"].keys()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len(operations) == len(ENDPOINTS)
    assert len({operation["operationId"] for operation in operations}) == len(ENDPOINTS)
    assert all(operation["summary"] and operation["tags"] != [""] for operation in operations)
    assert {scheme["scheme"] for scheme in document["components"]["securitySchemes"].values()} == {"basic", "bearer"}
    assert all({"401", "403"} <= operation["responses"].keys() for operation in operations)
