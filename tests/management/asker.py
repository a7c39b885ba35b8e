"""Somebody who asks the management endpoint, for tests.

Law: whatever is answered with 200 is held against the model that the OpenAPI document names for it, and every problem
against RFC 9457. Nothing here knows what the numbers should be.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, final

import httpx
import trio

from stompbroker.management import Management
from stompbroker.management.access import Access
from stompbroker.management.application import make_application
from stompbroker.management.endpoints import ENDPOINTS
from tests.support.patience import HARD_TIMEOUT_S

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from typing import TypeAlias

    from pydantic import BaseModel

    from stompbroker.transport import Tls
    from tests.support.broker_under_test import BrokerUnderTest

    Auth: TypeAlias = tuple[str, str] | None

API = "/api/v1"
#: How the audit log calls it.
ENDPOINT = "http://127.0.0.1:8613"
_ENDPOINTS = [
    (endpoint.method, re.compile(re.sub(r"{\w+}", "[^/]+", endpoint.path)), endpoint.answer) for endpoint in ENDPOINTS
]


def _model(method: str, path: str) -> type[BaseModel]:
    (found,) = [answer for wanted, pattern, answer in _ENDPOINTS if wanted == method and pattern.fullmatch(path)]
    return found


def hold_against_model(method: str, path: str, answer: Any) -> None:
    """`path` as in the table of endpoints, without the beginning that all have."""
    _model(method, path).model_validate(answer, strict=True)


@final
class Asker:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def get(self, path: str, **query: Any) -> Any:
        return await self._ask("GET", path, params={name: _as_text(value) for name, value in query.items()})

    async def post(self, path: str, **body: Any) -> Any:
        return await self._ask("POST", path, json=body)

    async def delete(self, path: str) -> Any:
        return await self._ask("DELETE", path)

    async def _ask(self, method: str, path: str, **request: Any) -> Any:
        response = await self.client.request(method, API + path, **request)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "application/json"
        answer = response.json()
        hold_against_model(method, path, answer)
        return answer

    async def refused(self, status: int, method: str, path: str, *texts: str, **request: Any) -> httpx.Response:
        """It is a problem, and its detail says all of these. `path` as a whole."""
        response = await self.client.request(method, path, **request)
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
        problem = response.json()
        assert problem.keys() == {"type", "title", "status", "detail"}
        assert problem["status"] == status
        for text in texts:
            assert text in problem["detail"], problem
        return response

    async def subscription(self, **wanted: Any) -> dict[str, Any]:
        """The only one of which these fields are so."""
        listed: dict[str, Any] = await self.get("/subscriptions")
        (found,) = [
            each for each in listed["subscriptions"] if all(each[name] == value for name, value in wanted.items())
        ]
        assert isinstance(found, dict)
        return found


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@asynccontextmanager
async def asking(
    broker: BrokerUnderTest, *, host: str = "127.0.0.1", token: str | None = None, auth: Auth = None
) -> AsyncIterator[Asker]:
    """Calls the application directly, without a server. `auth`: a user's name and password."""
    application = make_application(broker.parts.control, access_to(broker, host=host, token=token))
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8613", auth=auth) as client:
        yield Asker(client)


def access_to(broker: BrokerUnderTest, *, host: str = "127.0.0.1", token: str | None = None) -> Access:
    parts = broker.parts
    return Access(
        host=host,
        token=token,
        authenticator=parts.authenticator,
        audit=parts.audit,
        clock=parts.clock,
        endpoint=ENDPOINT,
    )


@asynccontextmanager
async def served(
    broker: BrokerUnderTest,
    *,
    token: str | None = None,
    auth: Auth = None,
    tls: Tls | None = None,
    trust: ssl.SSLContext | bool = True,
) -> AsyncIterator[Asker]:
    """The same through a real server on a real socket; with `tls`, `trust` says which certificates are good."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    # The listener is closed also when a test fails: an open one would fail whichever test the collector runs in.
    async with listener, trio.open_nursery() as nursery:
        access = access_to(broker, token=token)
        make = partial(make_application, broker.parts.control, access)
        await nursery.start(Management(access.endpoint, make, [listener], broker.parts.throttle, tls).run)
        limits = httpx.Limits(max_connections=None)
        base_url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
        async with httpx.AsyncClient(
            base_url=base_url, limits=limits, timeout=HARD_TIMEOUT_S, trust_env=False, auth=auth, verify=trust
        ) as client:
            yield Asker(client)
        nursery.cancel_scope.cancel()
