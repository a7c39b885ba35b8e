"""The examples of the documentation are programs that run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.broker_process import running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.broker_process import BrokerProcess

PAGE: Final = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
EXAMPLES: Final = re.findall(r"^## (.+?)$|^```python\n(.*?)^```$", f"## First\n{PAGE}", re.MULTILINE | re.DOTALL)
ADDRESS: Final = "localhost:61613"


def examples() -> Iterator[tuple[str, str]]:
    """Heading and code."""
    heading = ""
    for title, code in EXAMPLES:
        heading = title or heading
        if code:
            yield heading, code


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.mark.parametrize(("heading", "code"), list(examples()), ids=[heading for heading, _ in examples()])
def test_an_example_runs(broker: BrokerProcess, capsys: pytest.CaptureFixture[str], heading: str, code: str) -> None:
    assert ADDRESS in code

    exec(compile(code.replace(ADDRESS, f"127.0.0.1:{broker.address.port}"), heading, "exec"), {"__name__": "example"})

    assert SAID[heading] in capsys.readouterr().out


#: A part of what each example prints.
SAID: Final = {
    "First": "b'resize 17.png'",
    "Connecting": "is_connected=True",
    "Publishing": "'/topic/*' is a pattern",
    "Subscribing": "again, because of: the printer is out of paper",
    "Transactions": "",
    "Questions and answers": "b'144'\nthere is no server",
}


def test_every_example_is_found() -> None:
    assert [heading for heading, _ in examples()] == list(SAID)
