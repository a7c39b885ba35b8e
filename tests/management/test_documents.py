"""The example dashboard and alert rules ask for metrics that there are."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from stompbroker.management.metrics import render_metrics
from tests.support.broker_under_test import running_broker

DOCS = Path(__file__).parents[2] / "docs"


async def test_every_metric_that_is_asked_for_exists(store_directory: Path) -> None:
    asked = {
        name
        for file in ("grafana-dashboard.json", "alerts.yml")
        for name in re.findall(r"\bstompbroker_[a-z_]+", (DOCS / file).read_text())
    }
    async with running_broker(store_in=store_directory) as broker:
        subscriber = await broker.durable_subscriber()
        await broker.store_messages(b"one")
        await subscriber.acknowledge(await subscriber.next_message())
        text, _ = await render_metrics(broker.parts.control)

    families = text_string_to_metric_families(text.decode())
    there = {sample.name for family in families for sample in family.samples}
    assert asked - there == set()
    assert len(asked) > 15
