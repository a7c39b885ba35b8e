"""A broker of which only the control socket is there, with the durable subscriptions a test gives it.

It speaks as `Control` is agreed to: keys in order, at most `PAGE_LIMIT` of them at a time. A thread of its own answers,
because the commands that ask are processes a test waits for.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stompbroker.config.data_directory import hold
from stompbroker.delivery import Identity, IdentityKind, parse_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["ScriptedControl", "addressed", "named", "scripted_control"]

PAGE_LIMIT = 1_000

_SINCE = {"last_seen_at": "2030-01-01T00:00:00.000+00:00", "created_at": "2029-12-31T23:59:59.000+00:00"}
_COUNTS = {"backlog": 0, "in_flight": 0, "waiting": 0}
_AWAY = {"connected": False, "peer": None}


def named(client_id: str, name: str, **more: Any) -> dict[str, Any]:
    key = Identity("", IdentityKind.NAMED, client_id, name).key
    identity = {"key": key, "kind": "named", "client_id": client_id, "name": name}
    return identity | {"destination": "/topic/t", "ack": "client-individual"} | _AWAY | _SINCE | _COUNTS | more


def addressed(name: str, destination: str, **more: Any) -> dict[str, Any]:
    key = Identity("", IdentityKind.ADDRESSED, parse_pattern(destination).name, name).key
    identity = {"key": key, "kind": "addressed", "client_id": None, "name": name}
    return identity | {"destination": destination, "ack": "client"} | _AWAY | _SINCE | _COUNTS | more


class ScriptedControl:
    def __init__(self, subscriptions: list[dict[str, Any]]) -> None:
        self.subscriptions = sorted(subscriptions, key=lambda one: str(one["key"]))
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def answer(self, line: bytes) -> dict[str, Any]:
        request = json.loads(line)
        method, params = request["method"], request["params"]
        self.calls.append((method, params))
        if method == "durable_subscriptions":
            rest = [one for one in self.subscriptions if "after" not in params or one["key"] > params["after"]]
            page = rest[: min(params["limit"], PAGE_LIMIT)]
            return {"result": {"total": len(self.subscriptions), "subscriptions": page}}
        for one in self.subscriptions:
            if method == "delete_subscription" and one["key"] == params["key"]:
                self.subscriptions.remove(one)
                return {"result": {"key": one["key"], "backlog": one["backlog"]}}
        return {"error": {"message": f"no {method} with {params}"}}

    @property
    def deleted(self) -> list[str]:
        return [params["key"] for method, params in self.calls if method == "delete_subscription"]

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # shut down
                return
            with connection, connection.makefile("rwb", buffering=0) as stream:
                for line in stream:
                    stream.write(json.dumps(self.answer(line)).encode() + b"\n")


@contextmanager
def scripted_control(data: Path, *subscriptions: dict[str, Any]) -> Iterator[ScriptedControl]:
    control = ScriptedControl(list(subscriptions))
    with hold(data) as directory, directory.listen_for_control() as listener:
        thread = threading.Thread(target=control.serve, args=[listener])
        thread.start()
        try:
            yield control
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
