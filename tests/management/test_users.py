"""Users of the management endpoint: how they log in, what their roles and patterns allow, and what they never learn."""

from __future__ import annotations

from base64 import b64encode
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import jwt
import pytest
from structlog.testing import capture_logs

from stompbroker.clock import NANOSECONDS
from stompbroker.control.sampling import Flow
from stompbroker.management import server
from stompbroker.management.endpoints import ENDPOINTS
from tests.management.asker import API, ENDPOINT, asking, served
from tests.management.test_events import EVENTS, Stream, connected, until
from tests.support.broker_under_test import running_broker
from tests.support.users import PASSWORD, add_user, remove_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx

    from stompbroker.management.endpoints import Endpoint
    from tests.management.asker import Asker
    from tests.support.broker_under_test import BrokerUnderTest

TOKEN = "a-token-that-nobody-guesses"
SECRET = "a shared secret of forty-eight characters, or more"
OVERVIEW = f"{API}/overview"
RUN = f"{API}/collector/run"
#: Parts of the names that those who are restricted must not learn.
HIDDEN_WORDS = ("secret", "hush")


def add_users(path: Path) -> None:
    add_user(path, "app", read=[">", "DLQ.>"], write=[">"])
    add_user(path, "vera", roles=["viewer"])
    add_user(path, "olga", roles=["operator"])
    add_user(path, "rita", roles=["viewer"], read=["open.>", "DLQ.open.>"])
    add_user(path, "otto", roles=["operator"], read=["open.>", "DLQ.open.>"], manage=["open.>", "DLQ.open.>"])
    add_user(path, "luke", roles=["operator"], read=["open.>", "DLQ.open.>"], manage=["DLQ.open.>"])
    add_user(path, "nina", read=[">"], manage=[">"])


@final
@dataclass(frozen=True)
class World:
    """A broker with users, and with an open and a hidden thing of each kind."""

    broker: BrokerUnderTest
    users: Path

    def asking(self, user: str | None, **access: Any) -> Any:
        return asking(self.broker, auth=None if user is None else (user, PASSWORD), **access)

    def subscription_id(self, destination: str) -> str:
        (found,) = [each for each in self.broker.registry.subscriptions if each.destination == destination]
        return found.public_id

    def names(self, topic: str) -> dict[str, str]:
        """Of things that have to do with a topic, by the parameters that take them."""
        return {
            "name": topic,
            "topic": topic,
            "id": self.subscription_id(f"/topic/{topic}"),
            "message_id": "none",
            "offset": "0",
            "q": topic,
            "after": topic,
        }


@pytest.fixture
async def world(store_directory: Path) -> AsyncIterator[World]:
    add_users(store_directory / "users.toml")
    async with running_broker(store_in=store_directory) as broker:
        hidden = await broker.client(client_id="hush", login="app", passcode=PASSWORD)
        await hidden.subscribe("/topic/>", id="1", ack="client", durable_subscription_name="hush-all")
        await hidden.subscribe("/topic/secret.plans", id="2", ack="client-individual")
        shown = await broker.client(client_id="news", login="app", passcode=PASSWORD)
        await shown.subscribe("/topic/open.news", ack="client-individual", durable_subscription_name="readers")
        publisher = await broker.client(login="app", passcode=PASSWORD)
        for topic in ("secret.plans", "open.news"):
            await publisher.publish(b"1", b"2", destination=f"/topic/{topic}", retain="set")
        await publisher.sync()
        for client, subscription, count in ((shown, "0", 2), (hidden, "2", 6)):
            messages = await client.next_messages(count)
            dead = next(each for each in messages if each.headers["subscription"] == subscription)
            await client.send("NACK", id=dead.headers["ack"], requeue="false", reason="no")
            await client.sync()
        await broker.settle()
        await until(lambda: len(broker.registry.topics) == 4, "dead letters of both topics")
        yield World(broker, store_directory / "users.toml")


def path_of(endpoint: Endpoint, names: dict[str, str]) -> str:
    return API + endpoint.path.format(**names)


def needed(endpoint: Endpoint) -> dict[str, str]:
    """A body that the endpoint takes."""
    values = {"to": "earliest", "owner": "app", "pattern": "open.>"}
    return {name: values[name] for name, param in endpoint.in_body.items() if param.is_required}


async def ask_for(ask: Asker, endpoint: Endpoint, names: dict[str, str], **query: str) -> httpx.Response:
    body = needed(endpoint) if endpoint.method == "POST" else None
    return await ask.client.request(endpoint.method, path_of(endpoint, names), params=query, json=body)


def bearer_token(broker: BrokerUnderTest, lasts_s: int, **claims: Any) -> str:
    claims = {"exp": broker.parts.clock.now_ns() // NANOSECONDS + lasts_s} | claims
    return f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"


# Logging in ----------------------------------------------------------------------------------------------------------


async def test_a_user_logs_in_by_name_and_password(world: World) -> None:
    async with world.asking("olga") as ask:
        assert await ask.get("/me") == {
            "user": "olga",
            "roles": ["operator"],
            "is_operator": True,
            "is_restricted": False,
            "read": [],
            "manage": [],
        }
        await ask.post("/collector/run")
    async with world.asking("otto") as ask:
        me = await ask.get("/me")
        assert (me["is_restricted"], me["manage"]) == (True, ["/topic/open.>", "/topic/DLQ.open.>"])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Basic"},
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic b2xnYQ=="},  # a name alone
        {"Authorization": "Basic /////w=="},
        {"Authorization": "Basic OnB3"},
        {"Authorization": f"Bearer {TOKEN}"},
        {"Authorization": "Bearer "},
        {"Authorization": "Digest x"},
        {"Authorization": "olga"},
    ],
    ids=str,
)
async def test_whoever_is_not_logged_in_is_told_how_and_nothing_else(world: World, headers: dict[str, str]) -> None:
    names = world.names("secret.plans")
    async with world.asking(None) as ask:
        for endpoint in ENDPOINTS:
            response = await ask.client.request(endpoint.method, path_of(endpoint, names), headers=headers)
            assert response.status_code == 401, endpoint
            # Basic would make browsers ask and remember by themselves.
            assert response.headers["www-authenticate"] == 'Bearer realm="stompbroker"'
        for path in ("/metrics", EVENTS, "/nowhere"):
            assert (await ask.client.get(path, headers=headers)).status_code == 401, path
        for path in ("/", "/health/live", "/health/ready", "/static/app.js", "/api/docs", "/api/openapi.json"):
            assert (await ask.client.get(path, headers=headers)).status_code == 200, path


async def test_wrong_passwords_are_counted_and_in_the_audit_log(world: World) -> None:
    with capture_logs() as lines:
        async with asking(world.broker, auth=("olga", "wrong")) as ask:
            await ask.refused(401, "GET", OVERVIEW, "wrong login or passcode")
            refused = [line for line in lines if line["event"] == "login refused"]
            for _ in range(20):
                await ask.client.get(OVERVIEW)
            await ask.refused(401, "GET", OVERVIEW, "too many wrong logins from this address")
    assert [(line["user"], line["address"], line["endpoint"], line["what"]) for line in refused] == [
        ("olga", "127.0.0.1", ENDPOINT, "wrong passcode")
    ]
    assert "wrong'" not in str(lines)


async def test_a_json_web_token_is_a_login(store_directory: Path) -> None:
    (store_directory / "keys").write_text(SECRET)
    settings = {"token_keys": str(store_directory / "keys")}
    add_users(store_directory / "users.toml")

    async with running_broker(store_in=store_directory, **settings) as broker, asking(broker, token=TOKEN) as ask:

        def bearer(lasts_s: int = 60, **claims: Any) -> dict[str, str]:
            return {"Authorization": bearer_token(broker, lasts_s, **claims)}

        for headers, user, is_operator in (
            (bearer(sub="vera"), "vera", False),
            (bearer(sub="robot", roles=["operator"]), "robot", True),
            ({"Authorization": f"Bearer {TOKEN}"}, ":token", True),
        ):
            me = (await ask.client.get(f"{API}/me", headers=headers)).json()
            assert (me["user"], me["is_operator"], me["is_restricted"]) == (user, is_operator, False)
        for headers in (bearer(-3600, sub="vera"), {"Authorization": "Bearer a.b.c"}):
            await ask.refused(401, "GET", OVERVIEW, "the token is refused", headers=headers)
        await ask.refused(401, "GET", OVERVIEW, "neither an entry nor a role", headers=bearer(sub="ghost"))


async def test_the_first_user_ends_what_was_open_to_everybody(tmp_path: Path) -> None:
    async with running_broker(data=tmp_path, users_file="") as broker, asking(broker) as ask:
        await ask.get("/overview")
        add_user(tmp_path / "users.toml", "olga", roles=["operator"])
        broker.parts.authenticator.reload()
        await ask.refused(401, "GET", OVERVIEW, "send the name and password of a user")
        remove_user(tmp_path / "users.toml", "olga")
        broker.parts.authenticator.reload()
        await ask.refused(401, "GET", OVERVIEW)


async def test_health_does_not_tell_everybody_which_topic_is_damaged(world: World) -> None:
    world.broker.journal.health.note_damage("topic secret.plans: a page")
    async with world.asking(None) as ask:
        problem = (await ask.refused(503, "GET", "/health/ready")).json()
    assert problem["detail"] == "the store is damaged"


# Roles ----------------------------------------------------------------------------------------------------------------


async def test_without_a_role_nothing_is_answered_whatever_the_patterns(world: World) -> None:
    names = world.names("open.news")
    async with world.asking("nina") as ask:
        for endpoint in ENDPOINTS:
            await ask.refused(403, endpoint.method, path_of(endpoint, names), "neither the role viewer nor operator")
        for path in ("/metrics", EVENTS, "/nowhere"):
            await ask.refused(403, "GET", path, "neither the role viewer nor operator")


async def test_a_viewer_sees_everything_and_changes_nothing(world: World) -> None:
    names = world.names("secret.plans")
    connections = {"id": str(next(iter(world.broker.parts.sessions)))}
    with capture_logs() as lines:
        async with world.asking("vera") as ask:
            for endpoint in ENDPOINTS:
                known = names | (connections if "connections" in endpoint.path else {})
                if endpoint.method != "GET":
                    await ask.refused(403, endpoint.method, path_of(endpoint, known), "needs the role operator")
                elif endpoint.call != "trace":
                    await ask.get(endpoint.path.format(**known))
            assert (await ask.client.get("/metrics")).status_code == 200
            assert (await ask.get(f"/subscriptions/{names['id']}"))["can_change"] is False
            assert (await ask.get("/dead-letters/secret.plans"))["can_purge"] is False
    denied = [line for line in lines if line["event"] == "denied"]
    assert len(denied) == sum(endpoint.method != "GET" for endpoint in ENDPOINTS)
    assert {(line["user"], line["address"], line["endpoint"]) for line in denied} == {("vera", "127.0.0.1", ENDPOINT)}
    assert f"DELETE {API}/subscriptions/{names['id']}" in {line["what"] for line in denied}
    assert world.subscription_id("/topic/secret.plans") == names["id"]


async def test_what_an_operator_does_is_in_the_audit_log(world: World) -> None:
    subscription = world.subscription_id("/topic/open.news")
    with capture_logs() as lines:
        async with world.asking("olga") as ask:
            await ask.post(f"/subscriptions/{subscription}/pause")
            await ask.post("/dead-letters/secret.plans/purge", reason="no")
            await ask.refused(404, "POST", f"{API}/subscriptions/none/pause")
        async with world.asking(None, token=TOKEN) as ask:
            ask.client.headers["Authorization"] = f"Bearer {TOKEN}"
            await ask.post("/collector/run")
    acted = [line for line in lines if line["event"] == "operator action"]
    assert [(line["user"], line["what"]) for line in acted] == [
        ("olga", f'pause_subscription {{"id":"{subscription}"}}'),
        ("olga", 'purge_dead_letters {"topic":"secret.plans","reason":"no"}'),
        (":token", "run_collector {}"),
    ]
    assert {(line["address"], line["endpoint"]) for line in acted} == {("127.0.0.1", ENDPOINT)}


# Patterns -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["rita", "otto"])
async def test_who_is_restricted_learns_nothing_of_the_rest_by_any_endpoint(world: World, user: str) -> None:
    hidden, shown = world.names("secret.plans"), world.names("open.news")
    everything = {hidden["id"], world.subscription_id("/topic/>")}
    async with world.asking(user) as ask:
        for endpoint in ENDPOINTS:
            if not endpoint.in_path:
                answer = await ask_for(ask, endpoint, shown)
                assert not [word for word in HIDDEN_WORDS if word in answer.text], answer.text
            for name in (*endpoint.in_path, *(each for each in endpoint.in_query if each in hidden)):
                # Something hidden is answered as if it did not exist.
                if name == "offset":
                    continue
                answers = []
                for value in (hidden[name], hidden[name] + "0"):
                    asked = {name: value} if name in endpoint.in_query else {}
                    answer = await ask_for(ask, endpoint, shown | {name: value}, **asked)
                    answers.append((answer.status_code, answer.text.replace(value, "NAME")))
                assert answers[0] == answers[1], (endpoint, name)
                assert not any(each in answers[0][1] for each in (*HIDDEN_WORDS, *everything)), answers
        for path in ("/metrics", f"{EVENTS}?resource=/connections"):
            await ask.refused(403, "GET", path, "concerns the whole broker")
    assert world.subscription_id("/topic/secret.plans") == hidden["id"]


async def test_who_is_restricted_sees_what_is_within_its_patterns_and_counts_only_that(world: World) -> None:
    async with world.asking("rita") as ask:
        topics = await ask.get("/topics")
        assert ([each["name"] for each in topics["topics"]], topics["total"]) == (["DLQ.open.news", "open.news"], 2)
        subscriptions = await ask.get("/subscriptions")
        assert [each["destination"] for each in subscriptions["subscriptions"]] == ["/topic/open.news"]
        assert subscriptions["total"] == 1
        assert [each["topic"] for each in (await ask.get("/dead-letters"))["topics"]] == ["open.news"]
        collection = await ask.get("/collector")
        assert ([each["topic"] for each in collection["topics"]], collection["total"]) == (
            ["DLQ.open.news", "open.news"],
            2,
        )
        topic = await ask.get("/topics/open.news")
        assert [each["key"] for each in topic["subscriptions"]] == ["app/news/readers"]
        assert topic["publisher_connections"] == []
        overview = await ask.get("/overview")
        assert (overview["listening"], overview["ledger"], overview["store"]["reason"]) == ([], None, None)
        await ask.refused(403, "GET", f"{API}/connections", "rita is restricted to its patterns")


async def test_who_is_restricted_sees_the_history_of_what_is_within_its_patterns(world: World) -> None:
    sampler = world.broker.parts.control.sampler
    sample = await sampler.take()
    busy = dict.fromkeys(sample.flows, Flow((1, 1), (1.0, 1.0)))
    later = replace(sample, at_ns=sample.at_ns + 5 * NANOSECONDS, flows=busy)
    await sampler.history.note(later, sampler._looking.at_once())
    for user in ("vera", "rita"):
        async with world.asking(user) as ask:
            assert (await ask.get("/history"))["points"], "numbers of the whole broker, as in the overview"
            assert (await ask.get("/history", of="topic", name="open.news"))["is_kept"]
            shown = world.subscription_id("/topic/open.news")
            assert (await ask.get("/history", of="subscription", name=shown))["is_kept"]
    async with world.asking("rita") as ask:
        for of, hidden in (("topic", "secret.plans"), ("subscription", world.subscription_id("/topic/secret.plans"))):
            query = {"of": of, "name": hidden}
            await ask.refused(404, "GET", f"{API}/history", f"there is no {of} '{hidden}'", params=query)


async def test_why_something_is_kept_names_nobody_who_is_hidden(world: World) -> None:
    async with world.asking("olga") as ask:
        await ask.delete(f"/subscriptions/{world.subscription_id('/topic/open.news')}")
    async with world.asking("rita") as ask:
        (topic,) = (await ask.get("/collector", topic="open.news"))["topics"]
        assert (topic["pinned_by"], topic["why"]) == ([], "it is kept for subscriptions that you may not see")


async def test_an_operator_changes_what_its_patterns_allow_and_nothing_else(world: World) -> None:
    subscription = f"/subscriptions/{world.subscription_id('/topic/open.news')}"
    async with world.asking("otto") as ask:
        assert (await ask.get(subscription))["can_change"] is True
        await ask.post(f"{subscription}/pause")
        listed = await ask.get("/dead-letters/open.news")
        assert (listed["can_redrive"], listed["can_purge"]) == (True, True)
        assert (await ask.post("/dead-letters/open.news/redrive"))["redriven"] == 1
        for path in ("/collector/run", "/ledger/export"):
            await ask.refused(403, "POST", API + path, "concerns the whole broker")
    async with world.asking("luke") as ask:
        assert (await ask.get(subscription))["can_change"] is False
        await ask.refused(403, "POST", f"{API}{subscription}/resume", "no permission to manage /topic/open.news")
        letter = await ask.get("/dead-letters/open.news")
        assert (letter["can_redrive"], letter["can_purge"]) == (False, True)
        await ask.refused(403, "POST", f"{API}/dead-letters/open.news/redrive", "to manage /topic/open.news")
        assert (await ask.post("/dead-letters/open.news/purge"))["purged"] == 0


async def test_patterns_that_leave_nothing_out_do_not_restrict(world: World) -> None:
    everything = [">", "DLQ.>", "queue:>", "queue:DLQ.>"]
    add_user(world.users, "anna", roles=["viewer"], read=everything)
    add_user(world.users, "abel", roles=["operator"], read=everything)
    add_user(world.users, "adam", roles=["viewer"], read=everything[:2])
    world.broker.parts.authenticator.reload()
    for user, is_restricted in (("anna", False), ("abel", True), ("adam", True)):
        async with world.asking(user) as ask:
            assert (await ask.get("/me"))["is_restricted"] is is_restricted


# Streams --------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def watching_as(ask: Asker, user: str, **query: str) -> AsyncIterator[Stream]:
    async with connected(ask) as connection:
        stream = Stream(connection)
        login = b64encode(f"{user}:{PASSWORD}".encode()).decode()
        assert (await stream.ask(query, Authorization=f"Basic {login}")).status_code == 200
        yield stream


async def test_a_stream_shows_each_what_it_may_see(world: World) -> None:
    async with served(world.broker) as ask:
        for user, names in (("vera", {"open.news", "secret.plans"}), ("rita", {"open.news"})):
            async with watching_as(ask, user, resource="/topics?q=n") as stream:
                assert (await stream.next())[0] == "overview"
                _, page = await stream.next()
                assert {each["name"] for each in page["topics"] if not each["is_of_dead_letters"]} == names


async def test_a_stream_ends_when_its_user_is_removed_or_may_do_less(world: World) -> None:
    """By a change of the file, which the broker notices by itself."""
    async with served(world.broker) as ask, watching_as(ask, "vera") as first, watching_as(ask, "rita") as second:
        async with watching_as(ask, "olga") as third:
            for stream in (first, second, third):
                await stream.next()
            remove_user(world.users, "vera")
            add_user(world.users, "rita", roles=["viewer"], read=["open.other"])
            for stream in (first, second):
                await stream.expect_end()
            for _ in range(2):
                await third.next()


async def test_a_stream_ends_with_its_token(store_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_S", 0.1)
    (store_directory / "keys").write_text(SECRET)
    settings = {"token_keys": str(store_directory / "keys"), "token_leeway_s": 0}
    async with running_broker(store_in=store_directory, **settings) as broker, served(broker) as ask:
        async with connected(ask) as connection:
            stream = Stream(connection)
            login = bearer_token(broker, 3, sub="robot", roles=["viewer"])
            assert (await stream.ask({}, Authorization=login)).status_code == 200
            await stream.expect_end()
            assert broker.parts.control.sampler.watchers == 0
            assert not await connection.receive_some(), "then it is an idle connection, and closed after a while"


# What must not open more ----------------------------------------------------------------------------------------------


async def test_everything_to_read_does_not_contain_dead_letters(world: World) -> None:
    add_user(world.users, "vall", roles=["viewer"], read=[">"])
    world.broker.parts.authenticator.reload()
    async with world.asking("vall") as ask:
        assert (await ask.get("/me"))["is_restricted"] is True
        assert (await ask.get("/dead-letters"))["topics"] == []
        await ask.refused(404, "GET", f"{API}/dead-letters/secret.plans/0", "no dead letters")


async def test_a_role_that_is_not_known_does_not_open_the_whole_broker(store_directory: Path) -> None:
    """Whoever had patterns by a role must not lose them by a change of that role."""
    users, keys = store_directory / "users.toml", store_directory / "keys"
    keys.write_text(SECRET)
    users.write_text('[roles.team]\nread = ["open.>"]\n')
    async with running_broker(store_in=store_directory, token_keys=str(keys)) as broker:
        async with asking(broker) as ask:
            ask.client.headers["Authorization"] = bearer_token(broker, 600, sub="tom", roles=["viewer", "team"])
            for content in ('[roles.team]\nread = ["open.>"]\n', "[roles.team]\nread = []\n", "# none\n"):
                users.write_text(content)
                broker.parts.authenticator.reload()

                assert (await ask.get("/me"))["is_restricted"] is True, content
                await ask.refused(403, "GET", f"{API}/connections", "concerns the whole broker")


async def test_who_is_restricted_is_not_told_where_others_connect_from(world: World) -> None:
    async with world.asking("rita") as ask:
        (one,) = (await ask.get("/subscriptions"))["subscriptions"]
        assert (one["connected"], one["peer"], one["connection"]) == (True, None, None)
        one = await ask.get(f"/subscriptions/{one['id']}")
        assert (one["peer"], one["connection"]) == (None, None)
