"""The page at `/`, in a real browser, on a real broker under real traffic.

Whatever a test does, `Visit.check` holds at its end: no error on the console, and no request to another origin.
"""

from __future__ import annotations

import re
import socket
import threading
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.end_to_end.raw_client import RawClient, send_frame
from tests.management.asker import hold_against_model
from tests.management.browser import PHONE, page_address, visiting
from tests.support.broker_process import BrokerProcess, running_broker, wait_until
from tests.support.prepared_process import run_program
from tests.support.users import PASSWORD, add_user, remove_user

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page, Route

    from tests.management.browser import Visit
    from tests.support.broker_process import Address

TOKEN = "correct-horse-battery-staple"


# Traffic -------------------------------------------------------------------------------------------------------------


@contextmanager
def flowing(address: Address, destination: str) -> Iterator[None]:
    """Somebody publishes and somebody reads, as long as the block lasts."""
    is_over = threading.Event()

    def read(client: RawClient) -> None:
        while not is_over.is_set():
            client.next_frame()

    def publish(client: RawClient) -> None:
        batch = send_frame(destination, b"x" * 100) * 19 + send_frame(destination, b"last", receipt="batch")
        while not is_over.is_set():
            client.send_raw(batch)
            client.expect_receipt("batch")
            is_over.wait(0.01)

    with RawClient.connected(address) as reader, RawClient.connected(address) as publisher:
        reader.subscribe(destination)
        reading = threading.Thread(target=read, args=[reader])
        publishing = threading.Thread(target=publish, args=[publisher])
        reading.start()
        publishing.start()
        try:
            yield
        finally:
            is_over.set()
            publishing.join()
            # What wakes the reader if nothing is under way any more.
            publisher.send_raw(send_frame(destination, b"the end"))
            reading.join()


@contextmanager
def durable(address: Address, name: str, destination: str, **headers: str) -> Iterator[RawClient]:
    """A client with the durable subscription `tests/NAME`."""
    with RawClient.connected(address, client_id="tests") as client:
        client.subscribe(destination, ack="client-individual", durable_subscription_name=name, **headers)
        yield client


def publish(address: Address, *frames: bytes) -> None:
    with RawClient.connected(address) as client:
        client.send_raw(b"".join(frames))
        client.send("DISCONNECT", receipt="all")
        client.expect_receipt("all")


def refuse_for_good(client: RawClient, reason: str, *, of: int = 1) -> None:
    """The next messages become dead letters. Comes back when the last of them is one."""
    messages = [client.next_message() for _ in range(of)]
    for message in messages:
        client.send("NACK", id=message.headers["ack"], requeue="false", reason=reason, receipt=message.headers["ack"])
    for message in messages:
        client.expect_receipt(message.headers["ack"])


# Looking at the page -------------------------------------------------------------------------------------------------


def tile(page: Page, label: str) -> Locator:
    """The big number under a label."""
    return page.locator(".tile", has=page.get_by_text(label, exact=True)).locator(".value")


def rows(page: Page) -> Locator:
    return page.locator("tbody tr")


def log_in(page: Page, name: str, secret: str) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password or token").fill(secret)
    page.keyboard.press("Enter")


def curve(page: Page, title: str) -> str:
    """The path of the first line of a chart: M begins a stretch, L goes on."""
    return page.locator("figure", has_text=title).locator(".curve").first.get_attribute("d") or ""


def number(text: str | None) -> int:
    return int(re.sub(r"\D", "", text or "") or 0)


# Tests ---------------------------------------------------------------------------------------------------------------


def test_the_overview_shows_live_numbers_that_grow(visit: Visit, watched_broker: BrokerProcess) -> None:
    page = visit.page
    with flowing(watched_broker.address, "/topic/live.flow"):
        visit.open()

        expect(page.locator("#state")).to_have_text("Live")
        expect(tile(page, "Published/s")).to_have_text(re.compile("[1-9]"))
        expect(tile(page, "Delivered/s")).to_have_text(re.compile("[1-9]"))
        expect(tile(page, "Connections")).to_have_text("2")
        expect(page.locator("#store-state")).to_have_text("OK")
        in_all = page.locator(".tile", has_text="Published/s").locator(".note")
        first = number(in_all.text_content())
        wait_until(lambda: number(in_all.text_content()) > first, "more messages than at first")
        curve = page.locator("figure", has_text="Published per second").locator(".curve")
        wait_until(lambda: (curve.get_attribute("d") or "").count("L") > 1, "a curve of three points")
        streams = [url for url in visit.requests if "/events" in url]
        assert len(streams) == 1, streams

        page.get_by_role("button", name="Hold").click()
        expect(page.locator("#state")).to_have_text("Held")
        held = tile(page, "Published/s").text_content(), in_all.text_content()
        assert (tile(page, "Published/s").text_content(), in_all.text_content()) == held
        page.get_by_role("button", name="Hold").click()
        wait_until(lambda: in_all.text_content() != held[1], "numbers that move again")


def test_charts_begin_with_what_the_broker_has_kept_of_the_busiest(visit: Visit, watched_broker: BrokerProcess) -> None:
    page, name = visit.page, "history.flow"

    def points(query: str) -> int:
        """How many the broker has kept of which it knows the rate."""
        answer = page.request.get(f"{visit.address}/api/v1/history?{query}").json()
        hold_against_model("GET", "/history", answer)
        return sum(point["values"][0] is not None for point in answer["points"])

    with flowing(watched_broker.address, f"/topic/{name}"):
        publish(watched_broker.address, send_frame("/topic/history.quiet", b"x"))
        wait_until(lambda: points(f"of=topic&name={name}") >= 3, "ten seconds of history")
        for view, of in (("/", "of=broker"), (f"/topics/{name}", f"of=topic&name={name}")):
            kept = points(of)
            visit.open(view)
            wait_until(lambda: "L" in curve(page, "Published per second"), "a curve")
            assert curve(page, "Published per second").count("L") >= kept - 1, view
        visit.open("/subscriptions?sort=-rate")
        rows(page).first.get_by_role("link").first.click()
        wait_until(lambda: curve(page, "Per second").count("L") > 1, "a curve of three points")
        expect(page.locator("main")).not_to_contain_text("Not among")
        visit.open("/topics/history.quiet")
        expect(page.locator("main")).to_contain_text("Not among the 20 busiest")


def test_a_chart_shows_an_hour_with_its_gaps_and_goes_on_live_without_a_second_value_for_an_instant(
    visit: Visit, watched_broker: BrokerProcess
) -> None:
    page = visit.page
    address = f"{visit.address}/api/v1"
    real = page.request.get(f"{address}/history").json()

    def answer_with_an_hour(route: Route) -> None:
        # Events that have come, and one to come, are before its end.
        now = datetime.fromisoformat(page.request.get(f"{address}/overview").json()["sampled_at"])
        ends_at = now + timedelta(seconds=1.5)
        hour = [
            {"at": (ends_at - timedelta(seconds=5 * age)).isoformat(), "values": [float(age)] * len(real["names"])}
            for age in reversed(range(720))
        ]
        hour[200]["values"] = [None] * len(real["names"])
        told = real | {"points": hour}
        hold_against_model("GET", "/history", told)
        route.fulfill(json=told)

    page.route(re.compile("/api/v1/history"), answer_with_an_hour)

    visit.open()

    wait_until(lambda: curve(page, "Published per second").count("L") > 600, "an hour")
    figure = page.locator("figure", has_text="Published per second")
    expect(figure.locator(".times")).to_contain_text("1 h ago")
    drawn = set[str]()

    def is_live() -> bool:
        drawn.add(curve(page, "Published per second"))
        return len(drawn) > 3

    wait_until(is_live, "it goes on")
    for path in drawn:
        places = [float(place) for place in re.findall(r"[ML]([\d.]+)", path)]
        assert path.count("M") == 2, "one gap"
        assert places == sorted(set(places))
        assert 719 - 2 <= len(places) <= 719 + 3, "what is live makes points of the same length"
    assert len([url for url in visit.requests if "/v1/history" in url]) == 1


def test_topics_are_sorted_filtered_and_paged_and_their_names_are_text(
    visit: Visit, watched_broker: BrokerProcess
) -> None:
    page, hostile = visit.page, "many.<img src=x onerror=alert(1)>\u202e"
    shown = hostile.replace("\u202e", "\\u202e")
    names = [f"many.n{index:02d}" for index in range(60)]
    frames = [send_frame(f"/topic/{name}", b"x") * (index + 2) for index, name in enumerate(names)]
    publish(watched_broker.address, *frames, send_frame(f"/topic/{hostile}", b"x"))
    visit.open("/topics")

    page.get_by_role("searchbox").fill("MANY.")
    expect(page.locator(".pages")).to_contain_text("1–50 of 61 topics")
    page.get_by_role("button", name="Published").click()
    expect(page.get_by_role("columnheader", name="Published")).to_have_attribute("aria-sort", "descending")
    expect(rows(page).first).to_contain_text("many.n59")
    page.get_by_role("button", name="Next").click()
    expect(page.locator(".pages")).to_contain_text("51–61 of 61 topics")
    expect(rows(page).last).to_contain_text(shown)
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    page.go_back()
    expect(rows(page).first).to_contain_text("many.n59")
    page.get_by_role("button", name="Topic", exact=True).click()
    expect(rows(page).first).to_contain_text(shown)
    page.get_by_role("searchbox").fill("n07")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("searchbox").fill("nothing like this")
    expect(page.locator(".empty")).to_contain_text("No topic is like that")
    page.get_by_role("button", name="Show all").click()
    page.get_by_role("searchbox").fill("img")
    page.get_by_role("link", name=shown).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(shown)
    expect(tile(page, "Published")).to_have_text("1")
    assert page.locator("main img").count() == 0


def test_a_topic_says_who_reads_it_and_why_it_keeps_what_it_keeps(visit: Visit, watched_broker: BrokerProcess) -> None:
    page = visit.page
    with durable(watched_broker.address, "absent", "/topic/kept"):
        pass
    publish(watched_broker.address, send_frame("/topic/kept", b"x") * 3)

    visit.open("/topics/kept")

    expect(page.locator("#why")).to_contain_text("for the durable subscription 'tests/absent'")
    expect(page.locator(".panel", has_text="Policy")).to_contain_text("10, then dead-letter")
    expect(tile(page, "Stored")).to_have_text("3")
    page.get_by_role("link", name="tests/absent").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("tests/absent")
    expect(tile(page, "Backlog")).to_have_text("3")
    visit.open("/topics/there.is.none")
    expect(page.locator(".problem")).to_contain_text("there is no topic 'there.is.none'")
    visit.provoked.append("404")


def test_queues_have_a_tab_with_what_waits_who_takes_it_and_dead_letters(
    visit: Visit, watched_broker: BrokerProcess
) -> None:
    page, name, address = visit.page, "tabbed.<b>50% é", watched_broker.address
    publish(address, send_frame("/topic/tabbed.topic", b"x"), *[send_frame(f"/queue/{name}", b"x")] * 4)
    visit.open()
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Queues").click()
    page.get_by_role("searchbox").fill("tabbed")
    expect(rows(page)).to_have_text([re.compile(r"50% éno members.*4")])
    with RawClient.connected(address) as client:
        client.subscribe(f"/queue/{name}", ack="client-individual", prefetch_count="2")
        client.send("NACK", id=client.next_message().headers["ack"], requeue="false")
        row = page.get_by_role("row", name=re.compile("^tabbed"))
        for label, text in (("Backlog", "1"), ("In flight", "2"), ("Members", "1"), ("Dead letters", "1")):
            expect(row.locator(f'[data-label="{label}"]')).to_have_text(text)

        row.get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"/queue/{name}")
        expect(page.locator("#why")).to_contain_text("3 messages are kept, from offset 1 on, for its consumer")
        expect(page.locator('#nav a[aria-current="page"]')).to_have_text("Queues")
        page.locator(".panel", has_text="Offsets").get_by_role("link", name="1", exact=True).click()
        page.get_by_role("button", name="Redrive all").click()
        expect(page.get_by_role("dialog")).to_contain_text(f"To /queue/{name}, from where one consumer gets it")
        page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
        expect(page.locator(".notice")).to_contain_text(f"1 letter is redriven to /queue/{name}.")
    visit.open("/topics?q=tabbed")
    expect(rows(page)).to_have_text([re.compile("tabbed.topic")])
    visit.open("/queues/there.is.none")
    expect(page.locator(".problem")).to_contain_text("there is no queue 'there.is.none'")
    visit.provoked.append("404")


def test_a_group_shows_its_members_with_what_each_has_in_flight(visit: Visit, watched_broker: BrokerProcess) -> None:
    page, address = visit.page, watched_broker.address
    with RawClient.connected(address) as one, RawClient.connected(address) as two:
        for client, prefetch in ((one, "1"), (two, "2")):
            client.subscribe("/topic/grouped", ack="client-individual", group="workers", prefetch_count=prefetch)
        publish(address, send_frame("/topic/grouped", b"x") * 5)
        visit.open("/subscriptions?q=grouped")
        page.get_by_label("Shared or not").select_option("true")
        expect(rows(page)).to_contain_text("2 members")
        page.get_by_role("link", name="group:workers @ grouped").click()

        members = page.locator(".panel", has_text="Members").locator("tbody tr")
        expect(members).to_have_count(2)
        for row, prefetch in ((members.nth(0), "1"), (members.nth(1), "2")):
            for label in ("In flight", "Prefetch", "Delivered"):
                expect(row.locator(f'[data-label="{label}"]')).to_have_text(prefetch)
            expect(row.locator('[data-label="Delivered/s"]')).to_have_text(re.compile(r"[0-9]"))
            expect(row.locator('[data-label="Name in the ledger"]')).to_have_text(re.compile(r"-[0-9]+$"))
        expect(page.locator(".panel", has_text="About it")).not_to_contain_text("Connection")
        page.get_by_role("button", name="Delete").click()
        expect(page.get_by_role("dialog")).to_contain_text("Its 2 members are disconnected.")
        page.keyboard.press("Escape")
    expect(page.locator(".panel", has_text="Members")).to_contain_text(
        "stompbroker subscribe /topic/grouped --group workers"
    )


def test_a_subscription_is_paused_and_resumed(visit: Visit, watched_broker: BrokerProcess) -> None:
    page = visit.page
    with durable(watched_broker.address, "pausing", "/topic/pausing") as client:
        visit.open("/subscriptions")
        page.get_by_role("searchbox").fill("pausing")
        page.get_by_label("Durable or not").select_option("true")
        # The list is made anew, and a click in that moment would be lost.
        page.wait_for_url(re.compile(r"q=pausing&durable=true"))
        expect(page.get_by_role("link", name="tests/pausing")).to_have_count(1)
        page.get_by_role("link", name="tests/pausing").click()
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("button", name="Resume")).to_be_visible()

        publish(watched_broker.address, send_frame("/topic/pausing", b"held back"))
        expect(tile(page, "Backlog")).to_have_text("1")
        expect(tile(page, "In flight")).to_have_text("0")
        page.get_by_role("button", name="Resume").click()

        message = client.next_message()
        assert message.body == b"held back"
        expect(page.locator(".panel", has_text="Not settled").locator("tbody")).to_contain_text("in flight")
        client.send("ACK", id=message.headers["ack"])
        expect(page.locator(".panel", has_text="Not settled")).to_contain_text(
            "Everything that was sent to it is settled"
        )


def test_a_subscription_is_moved_and_deleted_with_its_backlog_in_the_question(
    visit: Visit, watched_broker: BrokerProcess
) -> None:
    page = visit.page
    with durable(watched_broker.address, "leaving", "/topic/leaving"):
        pass
    publish(watched_broker.address, send_frame("/topic/leaving", b"x") * 1234)
    visit.open("/subscriptions?q=leaving")
    page.get_by_role("link", name="tests/leaving").click()
    expect(tile(page, "Backlog")).to_have_text("1,234")

    page.get_by_role("button", name="Move").click()
    page.get_by_label("a time or an age").check()
    page.get_by_label("Time or age", exact=True).fill("yesterday")
    page.get_by_role("dialog").get_by_role("button", name="Move").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("to: ")
    page.get_by_label("an offset").check()
    page.get_by_label("Offset", exact=True).fill("1200")
    page.get_by_role("dialog").get_by_role("button", name="Move").click()
    expect(page.locator(".notice")).to_contain_text("reads on from offset 1,200; its backlog is 34")
    expect(tile(page, "Backlog")).to_have_text("34")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("34 messages still to get")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()

    expect(page.locator(".notice")).to_contain_text("tests/leaving is deleted; its backlog was 34")
    expect(page.get_by_role("heading", level=1)).to_have_text("Subscriptions")
    visit.provoked.append("400")


def test_a_dead_letter_is_read_and_redriven_and_reaches_its_subscriber(
    visit: Visit, watched_broker: BrokerProcess
) -> None:
    page, address = visit.page, watched_broker.address
    body = "Grüße, <b>not bold</b>"
    with (
        durable(address, "redriven", "/topic/dying") as client,
        RawClient.connected(address) as transient,
    ):
        transient.subscribe("/topic/dying", id="short-lived", ack="client-individual")
        publish(address, send_frame("/topic/dying", body.encode(), order="17"))
        refuse_for_good(client, "card declined")
        refuse_for_good(transient, "no idea")
        visit.open("/dead-letters")
        page.get_by_role("link", name="dying", exact=True).click()
        expect(rows(page)).to_have_count(2)
        page.get_by_label("Filter by reason").fill("declined")
        expect(rows(page)).to_have_count(1)
        expect(rows(page)).to_contain_text("tests/redriven")
        page.get_by_role("link", name="@").click()
        expect(page.locator(".body")).to_have_text(body)
        expect(page.locator(".panel", has_text="Headers")).to_contain_text("order")
        page.go_back()
        page.get_by_label("Filter by reason").fill("")
        expect(rows(page)).to_have_count(2)

        page.get_by_label("Select all 2 listed").check()
        page.get_by_role("button", name="Redrive 2 selected letters").click()
        page.get_by_role("dialog").get_by_role("button", name="Redrive").click()

        expect(page.locator(".notice")).to_contain_text("1 letter is redriven to the subscriber that failed")
        expect(page.locator(".notice")).to_contain_text("'short-lived' was not durable; redrive it to the topic")
        again = client.next_message()
        assert again.body.decode() == body
        client.send("ACK", id=again.headers["ack"])
        expect(rows(page)).to_have_count(1)

        page.get_by_role("button", name="Redrive all").click()
        page.get_by_label("the topic: every subscriber").check()
        page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
        expect(page.locator(".empty")).to_contain_text("There are no dead letters of dying any more")
        assert transient.next_message().body.decode() == body


def test_dead_letters_are_purged_only_after_a_question(visit: Visit, watched_broker: BrokerProcess) -> None:
    page = visit.page
    with durable(watched_broker.address, "purged", "/topic/purging") as client:
        publish(watched_broker.address, send_frame("/topic/purging", b"x") * 3)
        refuse_for_good(client, "useless", of=3)
    visit.open("/dead-letters/purging")
    expect(rows(page)).to_have_count(3)

    page.get_by_label("Select letter 1").check()
    page.get_by_role("button", name="Purge 1 selected letter").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(rows(page)).to_have_count(3)
    page.get_by_role("button", name="Purge 1 selected letter").click()
    page.get_by_role("dialog").get_by_role("button", name="Purge").click()
    expect(page.locator(".notice")).to_contain_text("1 letter is purged")
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="Purge all").click()
    expect(page.get_by_role("dialog")).to_contain_text("2 letters of purging will be gone for good")
    page.get_by_role("dialog").get_by_role("button", name="Purge").click()

    expect(page.locator(".notice")).to_contain_text("2 letters are purged")
    expect(page.locator(".empty")).to_contain_text("There are no dead letters of purging any more")


def test_everything_can_be_done_with_the_keyboard(visit: Visit, watched_broker: BrokerProcess) -> None:
    page, press = visit.page, visit.page.keyboard.press
    focused = page.locator(":focus")
    with RawClient.connected(watched_broker.address, client_id="victim") as client:
        visit.open()
        expect(page.locator("#state")).to_have_text("Live")
        press("Tab")
        expect(focused).to_have_text("Skip to the content")
        press("Enter")
        expect(page.locator("main")).to_be_focused()

        page.get_by_role("link", name="Connections", exact=True).first.focus()
        press("Enter")
        expect(page.get_by_role("heading", level=1)).to_be_focused()
        press("Tab")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.keyboard.type("victim")
        expect(rows(page)).to_have_count(1)
        expect(page.get_by_role("searchbox")).to_be_focused()
        press("Tab")
        expect(focused).to_have_text(re.compile("^Peer"))
        press("Enter")
        expect(page.get_by_role("columnheader", name="Peer")).to_have_attribute("aria-sort", "ascending")
        expect(focused).to_have_text(re.compile("^Peer"))

        close = page.get_by_role("button", name=re.compile("^Close 127"))
        close.focus()
        press("Enter")
        expect(focused).to_have_text("Cancel")
        press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(close).to_be_focused()
        press("Enter")
        press("Tab")
        expect(focused).to_have_text("Close the connection")
        press("Enter")
        client.expect_error("an operator has closed it")
        expect(page.locator(".empty")).to_contain_text("No connection is like that")


def test_a_lost_connection_is_said_and_comes_back_by_itself(browser: Browser, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    # The last one counts: this broker comes back where it was.
    broker = BrokerProcess(tmp_path, ["--http-port", str(port)])
    try:
        broker.start()
        with visiting(browser, page_address(broker)) as visit:
            visit.open()
            expect(visit.page.locator("#state")).to_have_text("Live")

            broker.kill()
            expect(visit.page.locator("#state")).to_have_text("Lost")
            expect(visit.page.locator("#banners")).to_contain_text("There is no connection to the broker")
            broker.restart()

            expect(visit.page.locator("#state")).to_have_text("Live")
            expect(visit.page.locator("#banners")).to_be_empty()
            visit.provoked.append("net::ERR_")
        broker.stop()
    finally:
        broker.clean_up()


def test_the_overview_says_that_the_lake_cannot_be_written_and_why(browser: Browser, tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, visiting(browser, page_address(broker)) as visit:
        page, in_the_way = visit.page, broker.data / "lake"
        with durable(broker.address, "shipping", "/topic/orders") as client:
            publish(broker.address, send_frame("/topic/orders", b"x"))
            client.send("ACK", id=client.next_frame().headers["ack"], receipt="acknowledged")
            client.expect_receipt("acknowledged")
        if in_the_way.exists():
            in_the_way.rename(broker.data / "before")
        in_the_way.write_text("a file")

        assert run_program("ledger", "export", "--data", str(broker.data)).returncode != 0
        visit.open()
        fact = page.locator("div", has=page.locator("#lake-state")).last
        expect(page.locator("#lake-state")).to_have_text("Failing")
        expect(fact).to_contain_text(str(in_the_way))
        expect(fact).to_contain_text("1 record to export")

        in_the_way.unlink()
        assert run_program("ledger", "export", "--data", str(broker.data)).returncode == 0
        expect(page.locator("#lake-state")).to_have_text("OK")
        expect(fact).to_contain_text("0 records to export")
        expect(fact).to_contain_text("last export")


def test_a_broker_with_a_token_asks_for_it_once(browser: Browser, tmp_path: Path) -> None:
    with running_broker(tmp_path, http_token=TOKEN) as broker, visiting(browser, page_address(broker)) as visit:
        page = visit.page
        visit.open("/topics")
        log_in(page, "", "something-else-entirely")
        expect(page.get_by_role("alert")).to_contain_text("Send the token of this broker")

        log_in(page, "", TOKEN)

        expect(page.locator(".empty")).to_contain_text("stompbroker publish /topic/greetings")
        page.reload()
        expect(page.locator(".empty")).to_contain_text("stompbroker publish /topic/greetings")
        assert not any(TOKEN in url for url in visit.requests)
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Name")).to_be_focused()
        visit.provoked.append("401")


def test_a_viewer_is_offered_nothing_that_it_may_not_do_and_refused_when_it_asks(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    users = tmp_path / "data" / "users.toml"
    add_user(users, "app", read=[">", "DLQ.>"], write=[">"])
    add_user(users, "vera", roles=["viewer"])
    add_user(users, "olga", roles=["operator"])
    with (
        running_broker(tmp_path) as broker,
        RawClient.connected(broker.address, login="app", passcode=PASSWORD, client_id="tests") as client,
        visiting(browser, page_address(broker)) as visit,
    ):
        page = visit.page
        visit.provoked += ["401", "403"]
        client.subscribe("/topic/watched", ack="client-individual", durable_subscription_name="watched")
        client.send_raw(send_frame("/topic/watched", b"x") * 2)
        refuse_for_good(client, "no", of=2)

        visit.open("/connections")
        log_in(page, "vera", "not her password")
        expect(page.get_by_role("alert")).to_contain_text("Wrong login or passcode")
        log_in(page, "vera", PASSWORD)
        expect(page.locator("#me")).to_contain_text("vera")
        expect(page.locator("#me")).to_contain_text("viewer")
        expect(rows(page)).to_contain_text(["app"])
        views = ["/connections", "/dead-letters/watched", "/dead-letters/watched/0", "/topics/watched"]
        visit.open("/subscriptions")
        page.get_by_role("link", name="watched").click()
        expect(tile(page, "Backlog")).to_have_text("0")
        views.append(page.evaluate("location.hash.slice(1)"))
        actions = page.get_by_role("button", name=re.compile("Close|Redrive|Purge|Collect|Pause|Move|Delete"))
        offered_to_operator = {}
        for user in ("vera", "olga"):
            for view in views:
                visit.open(view)
                expect(page.locator("main")).not_to_contain_text("Loading")
                expect(page.locator("main .panel, main .scroll").first).to_be_visible()
                if user == "vera":
                    expect(actions).to_have_count(0)
                else:
                    expect(actions.first).to_be_visible()
                    offered_to_operator[view] = actions.count()
            if user == "vera":
                refused = page.evaluate(
                    """async () => {
                        const headers = { Authorization: sessionStorage.getItem("stompbroker login") };
                        const answer = await fetch("/api/v1/collector/run", { method: "POST", headers });
                        return [answer.status, (await answer.json()).detail];
                    }"""
                )
                assert refused[0] == 403
                assert "role operator" in refused[1]
                page.get_by_role("button", name="Log out").click()
                assert page.evaluate("sessionStorage.length") == 0
                log_in(page, "olga", PASSWORD)
                expect(page.locator("#me")).to_contain_text("operator")
        assert all(offered_to_operator.values())
        remove_user(users, "olga")
        expect(page.get_by_label("Name")).to_be_focused()
        assert page.context.cookies() == []
        assert not any(PASSWORD in url for url in visit.requests)


def test_every_view_fits_a_phone_in_the_dark(browser: Browser, watched_broker: BrokerProcess) -> None:
    address, name = watched_broker.address, "a-rather-long-name-for-a-subscription-" * 4
    long_topic = ".".join(["a-rather-long-segment-of-a-name"] * 7)
    with durable(address, name, f"/topic/{long_topic}") as client:
        letter = send_frame(f"/topic/{long_topic}", b"x" * 1000, header="y" * 1000)
        publish(address, letter)
        refuse_for_good(client, "reason-without-blanks-" * 11)
        publish(address, letter, send_frame(f"/queue/{long_topic}", b"x"))
        with visiting(browser, page_address(watched_broker), size=PHONE, is_dark=True) as visit:
            page = visit.page
            letters = f"/dead-letters/{long_topic}"
            for view, shows in {
                "/": "Published/s",
                "/topics?q=rather": long_topic,
                f"/topics/{long_topic}": "Why it keeps",
                "/queues?q=rather": long_topic,
                f"/queues/{long_topic}": "Why it keeps",
                "/subscriptions?q=rather": name,
                "/dead-letters": long_topic,
                letters: "reason-without-blanks-",
                f"{letters}/0": "Why it died",
                "/connections": "127.0.0.1",
            }.items():
                visit.open(view)
                expect(page.locator("main")).to_contain_text(shows)
                width = page.evaluate("document.documentElement.scrollWidth")
                assert width <= PHONE[0], (view, width)
                nav = page.locator("#nav").evaluate("nav => [nav.scrollWidth, nav.clientWidth]")
                assert nav[0] <= nav[1], f"all tabs are seen: {nav}"
            visit.open("/subscriptions?q=rather")
            page.get_by_role("link", name=name).click()
            expect(tile(page, "In flight")).to_have_text("1")
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_last_values_are_listed_shown_and_removed_after_a_question(visit: Visit, watched_broker: BrokerProcess) -> None:
    page = visit.page
    visit.open("/topics")
    tab = page.get_by_role("link", name="Last values")
    expect(page.locator("#state")).to_have_text("Live")
    expect(tab).to_be_hidden()
    values = {"values.<b>eur": b"<b>1.1</b>", "values.usd": b"x" * 5_000}
    frames = (send_frame(f"/topic/{topic}", body, retain="set", unit="USD") for topic, body in values.items())
    publish(watched_broker.address, *frames)

    visit.open("/topics/values.%3Cb%3Eeur")
    page.get_by_role("link", name="10 B").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("values.<b>eur")
    expect(page.locator("pre.body")).to_have_text("<b>1.1</b>")
    expect(page.locator(".headers")).to_contain_text("USD")
    publish(watched_broker.address, send_frame("/topic/values.<b>eur", b"1.2", retain="set"))
    expect(page.locator("pre.body")).to_have_text("1.2")

    page.get_by_role("button", name="Remove…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator("pre.body")).to_have_text("1.2")
    page.get_by_role("button", name="Remove…").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.locator("#notices")).to_contain_text("The last value of values.<b>eur is removed.")
    expect(page.get_by_role("heading", level=1)).to_have_text("Last values")
    expect(rows(page)).to_have_count(1)

    visit.open()
    page.get_by_role("link", name="1 topic has one").click()
    page.get_by_role("button", name="Remove that of values.usd").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.locator("main")).to_contain_text("No topic has one.")
    visit.open("/last-values/values.usd")
    expect(page.locator("main")).to_contain_text("values.usd has no last value.")
    visit.open()
    expect(tab).to_be_hidden()
