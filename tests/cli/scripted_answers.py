"""A broker of which only the control socket is there, and that answers as a test says.

Law: speaks the control socket's language and knows no method; what it was asked is kept. `ScriptedLetters` is such an
answer for dead letters: it keeps what `Control` promises, and looks at few letters at a time, so that pieces matter.
`ScriptedSubscriptions` is one for durable subscriptions, groups and queues.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, final

from stompbroker.config.data_directory import hold
from stompbroker.delivery import Identity, IdentityKind, parse_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: Letters that are looked at for one answer.
LOOK = 150

Answer = dict[str, Any]


class Refused(Exception):
    """The broker answers that it cannot; the text says why."""


class Vanished(Exception):
    """The broker hangs up without an answer."""


@final
class ScriptedAnswers:
    def __init__(self, respond: Callable[..., Answer]) -> None:
        self._respond = respond
        self.calls: list[tuple[str, Answer]] = []
        self.called_at_s: list[float] = []

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # shut down
                return
            with suppress(Vanished), connection, connection.makefile("rwb", buffering=0) as stream:
                for line in stream:
                    stream.write(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: bytes) -> Answer:
        request = json.loads(line)
        self.calls.append((request["method"], request["params"]))
        self.called_at_s.append(time.monotonic())
        try:
            return {"result": self._respond(request["method"], **request["params"])}
        except Refused as refusal:
            return {"error": {"message": str(refusal)}}

    def params_of(self, method: str) -> list[Answer]:
        return [params for name, params in self.calls if name == method]


@contextmanager
def scripted_answers(data: Path, respond: Callable[..., Answer]) -> Iterator[ScriptedAnswers]:
    control = ScriptedAnswers(respond)
    with hold(data) as directory, directory.listen_for_control() as listener:
        thread = threading.Thread(target=control.serve, args=[listener])
        thread.start()
        try:
            yield control
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def letter(offset: int, **more: Any) -> Answer:
    return {
        "offset": offset,
        "message_id": f"5f0c9a3e-1-{offset + 1000}",
        "original_message_id": f"5f0c9a3e-1-{offset}",
        "subscription": "billing/invoices",
        "is_durable": True,
        "attempts": 10,
        "cause": "attempts used up",
        "reason": "",
        "published_at": "2030-01-01T00:00:00.000+00:00",
        "first_attempt_at": "2030-01-01T00:00:01.000+00:00",
        "last_attempt_at": "2030-01-01T00:10:00.000+00:00",
        "died_at": "2030-01-01T00:10:01.000+00:00",
        "body_bytes": 10,
    } | more


@final
class ScriptedLetters:
    """The letters of one topic."""

    def __init__(self, *letters: Answer, topic: str = "orders") -> None:
        self.topic = topic
        self.letters = list(letters)
        #: Why letters of a subscription cannot be redriven.
        self.why_not: dict[str, str] = {}
        #: Called before each chunk that is redriven or purged.
        self.before_chunk: Callable[[], None] = lambda: None

    def __call__(self, method: str, **params: Any) -> Answer:
        if method == "dead_letter_topics":
            return {"topics": [self._summary()] if self.letters else []}
        if params["topic"] != self.topic:
            raise Refused(f"there are no dead letters of {params['topic']!r}")
        if method == "dead_letters":
            found, piece = self._look(params)
            return {"letters": found, **piece}
        self.before_chunk()
        found, piece = self._look(params)
        skipped = [one for one in found if one["subscription"] in self.why_not] if method.startswith("redrive") else []
        self.letters = [one for one in self.letters if one not in found or one in skipped]
        changed = len(found) - len(skipped)
        if method == "purge_dead_letters":
            return {"purged": changed, **piece}
        reasons = [{"offset": one["offset"], "why": self.why_not[one["subscription"]]} for one in skipped]
        return {"redriven": changed, "skipped": reasons, **piece}

    def _summary(self) -> Answer:
        return {
            "topic": self.topic,
            "destination": f"/topic/DLQ.{self.topic}",
            "letters": len(self.letters),
            "bytes": sum(one["body_bytes"] for one in self.letters),
            "oldest_died_at": self.letters[0]["died_at"],
        }

    def _look(self, params: Answer) -> tuple[list[Answer], Answer]:
        behind = [one for one in self.letters if one["offset"] > params["after"]]
        found: list[Answer] = []
        after = params["after"]
        for one in behind[:LOOK]:
            after = one["offset"]
            if _is_meant(one, params):
                found.append(one)
                if len(found) == params["limit"]:
                    break
        return found, {"after": after, "is_complete": not behind or after == behind[-1]["offset"]}


def _is_meant(one: Answer, params: Answer) -> bool:
    return (
        params.get("subscription", one["subscription"]) == one["subscription"]
        and params.get("message_id", one["original_message_id"]) == one["original_message_id"]
        and params.get("offset", one["offset"]) == one["offset"]
        and params.get("reason", "").lower() in one["reason"].lower()
    )


# Durable subscriptions


def named(client_id: str, name: str, **more: Any) -> Answer:
    key = Identity("", IdentityKind.NAMED, client_id, name).key
    return (
        _subscription(key, client_id=client_id, durable_name=name, destination="/topic/t", ack="client-individual")
        | more
    )


def addressed(name: str, destination: str, **more: Any) -> Answer:
    key = Identity("", IdentityKind.ADDRESSED, parse_pattern(destination).name, name).key
    return _subscription(key, client_id=None, durable_name=name, destination=destination, ack="client") | more


def shared(key: str, members: int, **more: Any) -> Answer:
    """A group or a queue."""
    destination = key if key.startswith("/queue/") else f"/topic/{key.partition(' @ ')[2]}"
    given = {"sharing": "shared", "members": members, "connected": members > 0}
    return _subscription(key, client_id=None, destination=destination, ack="client-individual") | given | more


def _subscription(key: str, **more: Any) -> Answer:
    return {
        "id": f"{key}!",
        "key": key,
        "last_seen_at": "2030-01-01T00:00:00.000+00:00",
        "created_at": "2029-12-31T23:59:59.000+00:00",
        "backlog": 0,
        "in_flight": 0,
        "waiting": 0,
        "held_up": 0,
        "keys_held_up": 0,
        "connected": False,
        "peer": None,
        "durable": True,
        "sharing": "none",
        "browser": False,
        "members": int(more.get("connected", False)),
    } | more


@final
class ScriptedSubscriptions:
    def __init__(self, subscriptions: list[Answer]) -> None:
        self.subscriptions = sorted(subscriptions, key=lambda one: str(one["key"]))
        #: Parameters of each list that was asked for.
        self.asked: list[Answer] = []
        #: Keys.
        self.deleted: list[str] = []

    def __call__(self, method: str, **params: Any) -> Answer:
        if method == "subscriptions":
            assert params["sort"] == "key"
            self.asked.append(params)
            found = [
                one
                for one in self.subscriptions
                if params["q"].lower() in one["key"].lower()
                and one["durable"] is params["durable"]
                and (one["sharing"] != "none" or not params.get("shared"))
            ]
            start, limit = int(params.get("cursor", 0)), params["limit"]
            next_cursor = str(start + limit) if start + limit < len(found) else None
            return {"total": len(found), "next_cursor": next_cursor, "subscriptions": found[start : start + limit]}
        for one in self.subscriptions:
            if method == "remove_subscription" and one["id"] == params["id"]:
                self.subscriptions.remove(one)
                self.deleted.append(one["key"])
                return {"id": one["id"], "key": one["key"], "backlog": one["backlog"]}
        raise Refused(f"no {method} with {params}")


@contextmanager
def scripted_subscriptions(data: Path, *subscriptions: Answer) -> Iterator[ScriptedSubscriptions]:
    scripted = ScriptedSubscriptions(list(subscriptions))
    with scripted_answers(data, scripted):
        yield scripted
