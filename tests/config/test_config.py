"""Settings: every source, every kind of mistake, every combination that cannot work."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sqlalchemy import make_url

from stompbroker.config import (
    ENVIRONMENT_PREFIX,
    LogLevel,
    Settings,
    SettingsError,
    TopicSettings,
    bytes_as_text,
    effective,
    load,
    without_password,
)
from stompbroker.delivery import (
    DeliveryPolicy,
    IdlePolicy,
    Retention,
    SlowSubscriber,
    TopicPolicy,
    WhenUsedUp,
    parse_topic_name,
)
from stompbroker.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1024**2
DAY_S = 86_400


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, so that neither a stompbroker.toml nor a variable of the developer's counts."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(ENVIRONMENT_PREFIX):
            monkeypatch.delenv(name)
    return tmp_path


def mistake(config_text: str = "", **flags: object) -> str:
    """What `load` has to say about a settings file, without the heading."""
    Path("stompbroker.toml").write_text(config_text)
    with pytest.raises(SettingsError) as raised:
        load(flags=flags)
    heading, *lines = str(raised.value).splitlines()
    assert heading == "These settings cannot be used:"
    return "\n".join(lines)


def made(**values: object) -> Settings:
    """As in code, but with values as loosely typed as they come from outside."""
    return Settings.model_validate(values)


def source_of(settings: Settings, key: str) -> str:
    return next(str(one.source) for one in effective(settings) if one.key == key)


def test_without_any_source_the_defaults_hold() -> None:
    settings = load()

    assert (settings.host, settings.port, settings.log_level) == ("127.0.0.1", 61613, LogLevel.INFO)
    assert settings.memory_limit == 512 * MIB
    assert {str(one.source) for one in effective(settings)} == {"default"}


def test_each_source_overrides_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stompbroker.toml").write_text("port = 1\nmax_waiting = 2\nmax_prefetch = 5000\nmax_transactions = 4")
    monkeypatch.setenv("STOMPBROKER_MAX_WAITING", "20")
    monkeypatch.setenv("STOMPBROKER_MAX_PREFETCH", "6000")
    monkeypatch.setenv("STOMPBROKER_PORT", "11")

    settings = load(flags={"port": 111}, assignments=["max_prefetch=7000"])

    assert (settings.port, settings.max_prefetch, settings.max_waiting, settings.max_transactions) == (111, 7000, 20, 4)
    assert source_of(settings, "port") == "flag --port"
    assert source_of(settings, "max_prefetch") == "flag --set max_prefetch"
    assert source_of(settings, "max_waiting") == "environment STOMPBROKER_MAX_WAITING"
    assert source_of(settings, "max_transactions") == "file stompbroker.toml"
    assert source_of(settings, "max_subscriptions") == "default"


def test_a_file_that_is_named_is_read_instead_of_the_one_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "stompbroker.toml").write_text("port = 1")
    (tmp_path / "other.toml").write_text("max_waiting = 7")

    settings = load(tmp_path / "other.toml")

    assert (settings.port, settings.max_waiting) == (61613, 7)
    assert source_of(settings, "max_waiting") == f"file {tmp_path / 'other.toml'}"


def test_settings_made_in_code_do_not_look_at_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stompbroker.toml").write_text("port = 1")
    monkeypatch.setenv("STOMPBROKER_PORT", "2")

    assert Settings(max_waiting=3).port == 61613


def test_a_tilde_in_a_path_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("STOMPBROKER_DATA", "~/broker")

    assert load().data == tmp_path / "broker"


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load().port = 1


def test_a_settings_error_is_the_operators() -> None:
    assert issubclass(SettingsError, OperatorError)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("20971520", 20 * MIB),
        ("512 MiB", 512 * MIB),
        ("512MiB", 512 * MIB),
        ("32 mib", 32 * MIB),
        ("16384 KiB", 16 * MIB),
        ("1 GiB", 1024 * MIB),
        ("1.5 GiB", 1536 * MIB),
        ("100 MB", 100_000_000),
        ("20971520 B", 20 * MIB),
    ],
)
def test_a_size_is_bytes_or_has_a_unit(text: str, size: int) -> None:
    pieces = ["max_body_bytes=1 MB", "max_transaction_bytes=1 MB"]

    assert load(assignments=[f"memory_limit={text}", *pieces]).memory_limit == size


@pytest.mark.parametrize("text", ["", "512 M", "MiB", "-1 MiB", "1 MiB!", "1e9", "5 XB", "1 GiB 3", "\uff11 GiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r'a size such as "64 KiB" or "10 MB" from 16 MiB to 64 TiB'):
        load(assignments=[f"memory_limit={text}"])


@given(st.integers(0, 2**50).map(lambda number: number * 1024))
def test_a_shown_size_that_is_exact_means_the_same_when_it_is_read_again(size: int) -> None:
    shown = bytes_as_text(size)

    if "." not in shown and 1024 <= size <= 1024**4:
        assert made(window_bytes=shown, memory_limit="64 TiB").window_bytes == size


def test_a_misspelt_key_in_the_file_is_named_with_the_file_and_the_right_one() -> None:
    assert mistake("prot = 1") == '  - unknown key "prot" in file stompbroker.toml; did you mean "port"?'


def test_an_unknown_key_that_is_like_no_other_points_to_the_list() -> None:
    assert mistake("colour = 1").endswith(
        'unknown key "colour" in file stompbroker.toml; "stompbroker config" lists all there are'
    )


def test_an_unknown_variable_is_named_with_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPBROKER_MAX_CONNECTION", "5")

    assert mistake() == (
        "  - unknown variable STOMPBROKER_MAX_CONNECTION in the environment; "
        'did you mean "STOMPBROKER_MAX_CONNECTIONS"?'
    )


def test_a_wrong_value_is_named_with_its_variable_and_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPBROKER_PORT", "http")

    assert mistake() == ('  - port = "http" (environment STOMPBROKER_PORT): allowed is a whole number from 0 to 65535')


def test_a_wrong_value_is_named_with_its_flag() -> None:
    assert mistake(port=65536) == "  - port = 65536 (flag --port): allowed is a whole number from 0 to 65535"
    assert "(flag --log-level): allowed is one of debug, info, warning, error" in mistake(log_level="loud")


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("max_connections = 0", "a whole number from 1 to 1000000"),
        ("max_connections = true", "a whole number"),
        ("max_connections = 1.5", "a whole number"),
        ("connect_timeout_s = nan", "a number of seconds from 0.1 to 3600"),
        ("connect_timeout_s = inf", "a number of seconds from 0.1 to 3600"),
        ("heart_beat_want_ms = 0", "a whole number of milliseconds from 1 to 3600000"),
        ("heart_beat_margin = 0.9", "a number from 1 to 100"),
        ('memory_limit = "15 MiB"', "from 16 MiB to 64 TiB"),
        ('slow_subscriber = "drop"', "one of block, drop-oldest, drop-newest, disconnect"),
        ('host = ""', "a host name or an address"),
        ('data = ""', "a directory"),
        ('database = "mysql"', "or a URL postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE"),
        ("database = 5", '"memory" for nothing that outlives the broker'),
        ("min_free_bytes = -1", "from 0 B to 64 TiB"),
        ('lake = "s3://KEY:SECRET@bucket/lake"', "s3://BUCKET/PATH, without keys"),
        ('lake = "ftp://host/lake"', "file:///DIRECTORY or s3://BUCKET/PATH"),
        ('lake = "file://host/lake"', "file:///DIRECTORY or s3://BUCKET/PATH"),
        ("lake_retention_days = 0", "a whole number from 1 to 36500"),
        ('lake_export_bytes = "1 KiB"', "from 64 KiB to 1 TiB"),
        ("ledger = 1", "true or false"),
        ("topics = 3", "[[topics]] tables"),
        ("redelivery_first_delay_ms = -1", "a whole number of milliseconds from 0 to 86400000"),
        ("redelivery_multiplier = 0.5", "a number from 1 to 100"),
        ("redelivery_jitter = 1.5", "a number from 0 to 1"),
        ("redelivery_jitter = true", "a number from 0 to 1"),
        ("max_attempts = 1.5", "a whole number from 0 to 1000000"),
        ("ack_deadline_ms = 99", "0 for none, or at least 100: a whole number of milliseconds from 0 to 86400000"),
        ('when_used_up = "drop"', "one of dead-letter, discard, evict"),
        ("message_ttl_ms = -1", "a whole number of milliseconds from 0 to 315360000000"),
        ('retain_bytes = "65 TiB"', "from 0 B to 64 TiB"),
        ("idle_delete_unsettled = 1", "true or false"),
        ('idle_delete_unsettled = "yes"', "true or false"),
        ('server_header = "x\\ny"', 'or "" for no such header'),
        (f'server_header = "{"x" * 256}"', "up to 255 printable characters"),
    ],
)
def test_a_value_out_of_range_is_named_with_the_file_and_what_is_allowed(line: str, allowed: str) -> None:
    key = line.split()[0]

    text = mistake(line)

    assert text.startswith(f"  - {key} = ")
    assert "(file stompbroker.toml): allowed is " in text
    assert allowed in text


def test_all_mistakes_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPBROKER_REDELIVERY_DELAY", "5")

    text = mistake("prot = 1\nmax_waiting = 0", port=-1)

    assert [line.split()[1] for line in text.splitlines()] == ["unknown", "unknown", "port", "max_waiting"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"There is no settings file .*missing\.toml"):
        load(tmp_path / "missing.toml")


def test_a_file_that_is_not_toml_is_named_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "stompbroker.toml").write_text("port: 1")

    with pytest.raises(SettingsError, match=r"stompbroker\.toml is not valid TOML: .*line 1"):
        load()


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "stompbroker.toml").write_bytes(b'host = "\xff"')

    with pytest.raises(SettingsError, match=r"stompbroker\.toml is not valid TOML"):
        load()


@pytest.mark.parametrize(
    ("assignment", "words"),
    [("port", 'has no "="'), ("prot=1", 'did you mean "port"'), ("port=1", "both by --set and by a flag of its own")],
)
def test_a_wrong_assignment_is_explained(assignment: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load(flags={"port": 2}, assignments=[assignment])


def test_an_assignment_may_be_spelt_like_a_flag() -> None:
    assert load(assignments=["max-waiting = 5"]).max_waiting == 5


# The database and its password

READABLE = [
    "",
    "memory",
    "postgresql+psycopg://",
    "postgresql+psycopg:///stompbroker",
    "postgresql+psycopg://localhost/stompbroker",
    "postgresql+psycopg://broker@localhost:5432/stompbroker",
    "postgresql+psycopg://[::1]:5432/stompbroker",
    "postgresql+psycopg:///stompbroker?host=/run/postgresql&connect_timeout=5",
]

#: Each with the password "secret" in it, and what may be shown.
WITH_PASSWORD = [
    ("postgresql+psycopg://u:secret@h/d", "postgresql+psycopg://u:***@h/d"),
    (
        "postgresql+psycopg://u:secret:secret@h:5432/d?sslmode=require",
        "postgresql+psycopg://u:***@h:5432/d?sslmode=require",
    ),
    ("postgresql+psycopg://:secret%40@h", "postgresql+psycopg://:***@h"),
    ("postgresql+psycopg://h/d?password=secret&user=u", "postgresql+psycopg://h/d?password=***&user=u"),
    ("postgresql+psycopg://h/d?user=u&sslpassword=secret", "postgresql+psycopg://h/d?user=u&sslpassword=***"),
]

#: Not to be used; a person may still have written a password there.
REFUSED = [
    ("postgresql://u:secret@h/d", "postgresql://…"),
    ("postgres://u:secret@h/d", "postgres://…"),
    ("POSTGRESQL+PSYCOPG://u:secret@h/d", "POSTGRESQL+PSYCOPG://…"),
    ("postgresql+psycopg://u:se@secret@h/d", "postgresql+psycopg://…"),
    ("postgresql+psycopg://u:se/secret@h/d", "postgresql+psycopg://…"),
    ("postgresql+psycopg://u:s:secret", "postgresql+psycopg://…"),
    ("postgresql+psycopg://h/d?pass%77ord=secret", "postgresql+psycopg://…"),
    ("postgresql+psycopg://h:5432/d?x=secret@h", "postgresql+psycopg://…"),
    (" postgresql+psycopg://u:secret@h/d", "…"),
    ("u:secret@h/d", "…"),
    ("host=h password=secret", "…"),
    ("sqlite:///other.db", "sqlite://…"),
    ("other.db", "other.db"),
    ("Memory", "Memory"),
]  # fmt: skip


@pytest.mark.parametrize("database", [*READABLE, *(url for url, _ in WITH_PASSWORD)])
def test_a_database_is_the_file_memory_or_postgresql(database: str) -> None:
    assert load(flags={"database": database}).database == database


@pytest.mark.parametrize("database", READABLE)
def test_what_has_no_password_is_shown_as_it_is(database: str) -> None:
    assert without_password(database) == database


@pytest.mark.parametrize(("database", "shown"), WITH_PASSWORD)
def test_a_password_is_not_shown(database: str, shown: str) -> None:
    settings = load(flags={"database": database})

    (one,) = (one for one in effective(settings) if one.key == "database")
    assert (one.value, one.shown) == (shown, f'"{shown}"')
    assert "secret" not in repr(settings)
    assert "secret" not in str(settings)


@pytest.mark.parametrize(("database", "shown"), REFUSED)
def test_a_database_that_is_refused_is_named_without_its_password(database: str, shown: str) -> None:
    text = mistake(database=database)

    assert text.startswith(f'  - database = "{shown}" (flag --database): allowed is "" for the SQLite file')
    with pytest.raises(ValidationError) as raised:
        Settings(database=database)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "assignment",
    [
        "database:postgresql+psycopg://u:secret@h/d",  # no "=" at all
        "postgresql+psycopg://u:secret@h/d?sslmode=require",  # taken for a key
        "databse=postgresql+psycopg://u:secret@h/d",
    ],
)
def test_a_password_in_the_wrong_place_is_not_shown_either(assignment: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load(assignments=[assignment])

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("value", ['["secret"]', '{ url = "secret" }'])
def test_a_database_that_is_no_text_is_refused_without_being_shown(value: str) -> None:
    assert mistake(f"database = {value}").startswith('  - database = "…" (file stompbroker.toml): allowed is')


def test_a_contradiction_elsewhere_does_not_show_the_password() -> None:
    with pytest.raises(ValidationError) as raised:
        Settings(database=WITH_PASSWORD[0][0], default_prefetch=20, max_prefetch=10)

    assert "secret" not in str(raised.value)


@given(st.text(), st.text(), st.text(alphabet=":/?#@&=[]%+ .x"))
def test_what_is_shown_of_any_url_has_no_password_in_it(before: str, after: str, between: str) -> None:
    for url in (f"{before}:hidden{between}@{after}", f"postgresql+psycopg://u{before}:{between}hidden@h{after}"):
        assert "hidden" not in without_password(url)


@given(st.from_regex(r"postgresql\+psycopg://[a-z:/?@%0-9=&.]*", fullmatch=True))
def test_what_is_accepted_has_the_same_password_for_the_driver(url: str) -> None:
    shown = without_password(url)
    if shown.endswith("…"):
        return

    parsed = make_url(url)

    assert shown == url if parsed.password is None else f":***@{parsed.host or ''}" in shown


# Combinations

ON_STANDBY = 'standby = true\ndatabase = "postgresql+psycopg://db.example/broker"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("default_prefetch = 20\nmax_prefetch = 10", "default_prefetch (20) is above max_prefetch (10)"),
        ('memory_limit = "63 MiB"', "max_body_bytes (16 MiB) is above a quarter of memory_limit (63 MiB)"),
        ('memory_limit = "63 MiB"', "max_transaction_bytes (16 MiB) is above a quarter of memory_limit (63 MiB)"),
        ('window_bytes = "1 GiB"', "window_bytes (1 GiB) is above memory_limit (512 MiB)"),
        ("block_timeout_s = 0", 'slow_subscriber "block" with a block_timeout_s of 0'),
        (
            'slow_subscriber = "disconnect"\nblock_timeout_s = 0\n[[topics]]\npattern = "a"\nslow_subscriber = "block"',
            'topics table 1 ("a"): slow_subscriber "block" with a block_timeout_s of 0',
        ),
        ('[[topics]]\npattern = "a"\nblock_timeout_s = 0', 'topics table 1 ("a"): slow_subscriber "block"'),
        ('[[topics]]\npattern = "a"\nwindow_bytes = "1 GiB"', 'topics table 1 ("a"): window_bytes (1 GiB)'),
        (
            "redelivery_first_delay_ms = 301000",
            "redelivery_first_delay_ms (301000) is above redelivery_max_delay_ms (300000): no wait could be as long",
        ),
        (
            "redelivery_max_delay_ms = 999",
            "redelivery_first_delay_ms (1000) is above redelivery_max_delay_ms (999)",
        ),
        (
            '[[topics]]\npattern = "a"\nredelivery_max_delay_ms = 999',
            'topics table 1 ("a"): redelivery_first_delay_ms (1000) is above redelivery_max_delay_ms (999)',
        ),
        (
            "idle_delete_unsettled = true",
            "idle_delete_unsettled is true while idle_delete_s is 0: no durable subscription would ever be deleted",
        ),
        (
            'idle_delete_unsettled = true\nidle_delete_s = 604800\n[[topics]]\npattern = "a"\nidle_delete_s = 0',
            'topics table 1 ("a"): idle_delete_unsettled is true while idle_delete_s is 0',
        ),
        (
            "idle_delete_s = 3600",
            "idle_delete_s (3600.0) is below idle_warning_s (604800.0): the warning would come after the deletion",
        ),
        (
            '[[topics]]\npattern = "a"\nidle_delete_s = 3600',
            'topics table 1 ("a"): idle_delete_s (3600.0) is below idle_warning_s (604800.0)',
        ),
        ("standby = true", "standby needs a store that two machines can reach"),
        ('standby = true\ndatabase = "memory"', "standby needs a store that two machines can reach"),
        (f"{ON_STANDBY}lease_s = 0", "standby needs a lease"),
        (ON_STANDBY, "standby with a lake in the data directory would leave a part of the ledger on each machine"),
        ("lease_s = 1.9", "0 for none, or at least 2: a number of seconds"),
    ],
)
def test_what_cannot_work_together_is_refused_with_a_sentence(text: str, words: str) -> None:
    assert words in mistake(text)


def test_a_contradiction_names_where_its_halves_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPBROKER_MAX_PREFETCH", "10")

    assert mistake("default_prefetch = 11").endswith(
        "(default_prefetch from file stompbroker.toml, max_prefetch from environment STOMPBROKER_MAX_PREFETCH)"
    )


@pytest.mark.parametrize(
    "line",
    ["block_timeout_s = 0", "redelivery_max_delay_ms = 0", "idle_delete_unsettled = true", "idle_delete_s = 1"],
)
def test_a_general_contradiction_is_not_repeated_for_every_table(line: str) -> None:
    text = mistake(f'{line}\n[[topics]]\npattern = "a"\nwindow_messages = 5')

    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "default_prefetch = 10\nmax_prefetch = 10",
        'memory_limit = "64 MiB"',
        'window_bytes = "512 MiB"',
        'slow_subscriber = "drop-oldest"\nblock_timeout_s = 0',
        'max_transaction_bytes = "1 MiB"',  # unwise with bodies of 16 MiB, but it works
        "redelivery_first_delay_ms = 300000",
        "redelivery_first_delay_ms = 0\nredelivery_max_delay_ms = 0",
        "idle_delete_s = 604800",
        "idle_delete_s = 1\nidle_warning_s = 0",
        "idle_delete_s = 604800\nidle_delete_unsettled = true",
        '[[topics]]\npattern = "a"\nidle_delete_s = 604800\nidle_delete_unsettled = true',
        "ack_deadline_ms = 100",
        "lease_s = 2",
        "lease_s = 0",
        f'{ON_STANDBY}lake = "s3://bucket/lake"',
        f"{ON_STANDBY}ledger = false",
    ],
)
def test_what_works_is_not_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "stompbroker.toml").write_text(text)

    load()


def test_contradictions_are_refused_in_code_too() -> None:
    with pytest.raises(ValidationError, match="default_prefetch"):
        Settings(default_prefetch=20, max_prefetch=10)


# Topics


def test_a_table_overrides_the_general_policy_where_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "stompbroker.toml").write_text(
        'window_messages = 7\n[[topics]]\npattern = "prices.*"\nslow_subscriber = "drop-oldest"\nwindow_bytes = "1 MiB"'
    )

    settings = load()

    general, prices = settings.policy(), settings.policy(settings.topics[0])
    assert (general.slow_subscriber, general.window_bytes) == (SlowSubscriber.BLOCK, 8 * MIB)
    assert (prices.slow_subscriber, prices.window_bytes) == (SlowSubscriber.DROP_OLDEST, MIB)
    assert (prices.window_messages, prices.block_timeout_s) == (7, 30.0)


def test_the_first_table_that_matches_counts_alone(tmp_path: Path) -> None:
    (tmp_path / "stompbroker.toml").write_text(
        '[[topics]]\npattern = "a.b"\nwindow_messages = 1\n[[topics]]\npattern = "a.*"\nblock_timeout_s = 2'
    )

    policies = load().policies()

    found = {name: policies.find(parse_topic_name(name)) for name in ("a.b", "a.c", "b")}
    assert [found[name].window_messages for name in found] == [1, 50_000, 50_000]
    assert [found[name].block_timeout_s for name in found] == [30.0, 2.0, 30.0]


def test_the_default_settings_make_the_default_policy() -> None:
    assert Settings().policy() == TopicPolicy()


#: Every key that a table may have, with a value that is no default, and where it is found in a policy.
OVERRIDES = [
    ("slow_subscriber", "disconnect", lambda policy: policy.slow_subscriber, SlowSubscriber.DISCONNECT),
    ("window_bytes", 2048, lambda policy: policy.window_bytes, 2048),
    ("window_messages", 7, lambda policy: policy.window_messages, 7),
    ("block_timeout_s", 5, lambda policy: policy.block_timeout_s, 5.0),
    ("redelivery_first_delay_ms", 5, lambda policy: policy.delivery.first_delay_ms, 5),
    ("redelivery_multiplier", 3, lambda policy: policy.delivery.multiplier, 3.0),
    ("redelivery_max_delay_ms", 5000, lambda policy: policy.delivery.max_delay_ms, 5000),
    ("redelivery_jitter", 0, lambda policy: policy.delivery.jitter, 0.0),
    ("max_attempts", 0, lambda policy: policy.delivery.max_attempts, 0),
    ("ack_deadline_ms", 100, lambda policy: policy.delivery.ack_deadline_ms, 100),
    ("when_used_up", "evict", lambda policy: policy.delivery.when_used_up, WhenUsedUp.EVICT),
    ("message_ttl_ms", 5, lambda policy: policy.message_ttl_ms, 5),
    ("last_value", "true", lambda policy: policy.last_value, True),
    ("retain_s", 5, lambda policy: policy.retention.age_s, 5.0),
    ("retain_bytes", "1 MiB", lambda policy: policy.retention.max_bytes, MIB),
    ("retain_messages", 5, lambda policy: policy.retention.max_messages, 5),
    ("idle_warning_s", 0, lambda policy: policy.idle.warn_after_s, 0.0),
    ("idle_delete_s", 8 * DAY_S, lambda policy: policy.idle.delete_after_s, 8.0 * DAY_S),
    ("idle_delete_unsettled", "true", lambda policy: policy.idle.deletes_unsettled, True),
]


@pytest.mark.parametrize(("key", "value", "find", "expected"), OVERRIDES, ids=[key for key, *_ in OVERRIDES])
def test_everything_in_a_policy_can_be_set_for_all_topics_and_for_some(
    key: str, value: object, find: Callable[[TopicPolicy], object], expected: object
) -> None:
    needed = {"idle_delete_s": 7 * DAY_S} if key == "idle_delete_unsettled" else {}

    general = made(**needed, **{key: value})
    special = made(**needed, topics=[{"pattern": "a", key: value}])

    assert find(general.policy()) == expected
    assert find(special.policy(special.topics[0])) == expected
    assert find(special.policy()) == find(TopicPolicy())


def test_a_table_may_have_every_field_of_a_policy_and_nothing_else() -> None:
    parts = {"delivery": DeliveryPolicy, "retention": Retention, "idle": IdlePolicy}
    of_queues = ("queue_max_messages", "is_declared")
    plain = [field.name for field in fields(TopicPolicy) if field.name not in (*parts, *of_queues)]

    assert {key for key, *_ in OVERRIDES} == set(TopicSettings.model_fields) - {"pattern"}
    assert len(OVERRIDES) == len(plain) + sum(len(fields(part)) for part in parts.values())


def test_dead_letters_have_the_general_policy_with_a_retention_of_their_own_and_do_not_expire() -> None:
    settings = made(window_messages=7, message_ttl_ms=5, retain_s=1, retain_messages=2, dead_letter_retain_s=3)

    policies = settings.policies()

    expected = replace(settings.policy(), retention=Retention(age_s=3, max_bytes=1024 * MIB), message_ttl_ms=0)
    assert policies.find(parse_topic_name("DLQ.a")) == policies.dead_letters == expected
    assert policies.find(parse_topic_name("a")) == settings.policy()


def test_a_table_for_dead_letters_overrides_what_holds_for_dead_letters() -> None:
    policies = made(message_ttl_ms=5, topics=[{"pattern": "DLQ.a", "retain_messages": 9}]).policies()

    found = policies.find(parse_topic_name("DLQ.a"))
    assert found.retention == Retention(age_s=14 * DAY_S, max_bytes=1024 * MIB, max_messages=9)
    assert found.message_ttl_ms == 0


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("false", False)])
def test_yes_or_no_is_a_word_where_there_is_only_text(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: bool
) -> None:
    monkeypatch.setenv("STOMPBROKER_IDLE_DELETE_UNSETTLED", text)

    settings = load(assignments=["idle_delete_s=604800"])

    assert settings.idle_delete_unsettled is expected
    (one,) = (one for one in effective(settings) if one.key == "idle_delete_unsettled")
    assert (one.shown, one.value) == (text, expected)


@pytest.mark.parametrize("text", ["True", "1", "yes", ""])
def test_no_other_word_is_yes_or_no(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("STOMPBROKER_IDLE_DELETE_UNSETTLED", text)

    assert "(environment STOMPBROKER_IDLE_DELETE_UNSETTLED): allowed is true or false" in mistake()


def test_yes_or_no_in_a_file_is_true_or_false(tmp_path: Path) -> None:
    (tmp_path / "stompbroker.toml").write_text("idle_delete_s = 604800\nidle_delete_unsettled = true")

    assert load().idle_delete_unsettled is True


def test_deleting_what_is_not_settled_says_that_it_is_lost() -> None:
    (one,) = (one for one in effective(Settings()) if one.key == "idle_delete_unsettled")

    assert "unacknowledged" in one.reason
    assert "lost" in one.reason


@pytest.mark.parametrize("deadline_ms", [0, 100])
def test_the_shortest_deadlines_are_none_and_a_tenth_of_a_second(deadline_ms: int) -> None:
    assert made(ack_deadline_ms=deadline_ms).policy().delivery.ack_deadline_ms == deadline_ms


def test_tables_can_be_given_as_json_where_there_is_only_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPBROKER_TOPICS", '[{"pattern": "a", "window_bytes": "2 MiB"}]')

    assert load().topics[0].overrides()["window_bytes"] == 2 * MIB


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("window_messages = 5", "topics table 1: pattern is missing in file stompbroker.toml"),
        (
            'pattern = "a"\nwindow_messages = 0',
            "topics table 1: window_messages = 0 (file stompbroker.toml): allowed is",
        ),
        ('pattern = "a"\nwindow_message = 1', 'unknown key "window_message" in file stompbroker.toml; did you mean'),
        ('pattern = ""', 'topics table 1: pattern = "" (file stompbroker.toml): allowed is a destination or a pattern'),
        ('pattern = "/queue/a"', 'topics table 1: pattern "/queue/a": '),
        (
            'pattern = "a"\nack_deadline_ms = 5',
            "ack_deadline_ms = 5 (file stompbroker.toml): allowed is 0 for none, or",
        ),
        (
            'pattern = "a"\nidle_delete_unsettled = 0',
            "idle_delete_unsettled = 0 (file stompbroker.toml): allowed is true",
        ),
        ('pattern = "a"\nwhen_used_up = "x"', "allowed is one of dead-letter, discard, evict"),
        ('pattern = "a"\ndead_letter_retain_s = 5', 'unknown key "dead_letter_retain_s"'),
    ],
)
def test_a_mistake_in_a_table_names_the_table(table: str, words: str) -> None:
    assert words in mistake(f"[[topics]]\n{table}")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.b", "a.b"),
        ("a.b", "/topic/a/b"),
        ("a.b", "//a..b/"),
        ("a.#", "a.>"),
        ("a/**", "/topic/a.#"),
    ],
)
def test_a_pattern_given_twice_is_refused_however_it_is_spelt(first: str, second: str) -> None:
    text = mistake(f'[[topics]]\npattern = "{first}"\n[[topics]]\npattern = "x"\n[[topics]]\npattern = "{second}"')

    assert f'topics table 3: pattern "{second}" matches the same topics as table 1 ("{first}")' in text


def test_patterns_that_overlap_are_fine(tmp_path: Path) -> None:
    (tmp_path / "stompbroker.toml").write_text('[[topics]]\npattern = "a.b"\n[[topics]]\npattern = "a.*"')

    assert [table.pattern for table in load().topics] == ["a.b", "a.*"]


# What `stompbroker config` shows


def test_every_setting_says_what_it_is_for_and_what_is_allowed() -> None:
    for one in effective(Settings()):
        assert one.reason, one.key
        assert one.allowed, one.key


def test_effective_settings_are_shown_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "stompbroker.toml").write_text('[[topics]]\npattern = "a"\nwindow_bytes = 1048576')

    shown = {one.key: (one.shown, one.value) for one in effective(load())}

    assert shown["memory_limit"] == ("512 MiB", 512 * MIB)
    assert shown["host"] == ('"127.0.0.1"', "127.0.0.1")
    assert shown["slow_subscriber"] == ('"block"', "block")
    assert shown["topics"] == ("a", [{"pattern": "a", "window_bytes": MIB}])


@pytest.mark.parametrize(
    "key", sorted(set(Settings.model_fields) - {"topics", "host", "data", "database", "lake", "ledger"})
)
def test_the_edges_of_every_range_are_allowed_and_what_lies_beyond_is_not(key: str) -> None:
    metadata = Settings.model_fields[key].metadata
    low = next((item.ge for item in metadata if hasattr(item, "ge")), None)
    high = next((item.le for item in metadata if hasattr(item, "le")), None)
    if low is None or high is None:
        assert Settings.model_fields[key].annotation not in (int, float), "every number has a range"
        return
    # Wide enough that the edges do not contradict anything else.
    room = {"memory_limit": "64 TiB", "default_prefetch": 1, "max_prefetch": 1_000_000, "slow_subscriber": "disconnect"}
    room |= {"redelivery_first_delay_ms": 0, "redelivery_max_delay_ms": 7 * DAY_S * 1000}
    if key == "memory_limit":
        room |= {"max_body_bytes": 1, "max_transaction_bytes": 1, "window_bytes": 1024}

    for edge in (low, high):
        assert getattr(made(**(room | {key: edge})), key) == edge
    for beyond in (low - 1, high + 1):
        with pytest.raises(ValidationError):
            made(**(room | {key: beyond}))


@pytest.mark.parametrize(
    ("lake", "place"),
    [
        ("", "/data/lake"),
        ("/mnt/lake", "/mnt/lake"),
        ("lake of ours", "{here}/lake of ours"),
        ("~/lake", "{home}/lake"),
        ("file:///mnt/lake", "file:///mnt/lake"),
        ("s3://bucket/a/lake?region=eu-central-1", "s3://bucket/a/lake?region=eu-central-1"),
    ],
)
def test_the_lake_lies_in_the_data_directory_or_where_it_is_said(lake: str, place: str) -> None:
    assert made(data="/data", lake=lake).lake_place == place.format(here=Path.cwd(), home=Path.home())


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('name = "*"', ['queues table 1: name "*"', "wildcard"]),
        ("max_attempts = 3", ["queues table 1: name is missing", "which queues"]),
        ('name = "a"\nslow_subscriber = "block"', ['queues table 1: unknown key "slow_subscriber"']),
        ('name = "a"\nqueue_max_messages = -1', ["queues table 1: queue_max_messages = -1", "allowed is"]),
        ('name = "a"\n[[queues]]\nname = "/queue/a"', ['queues table 2: name "/queue/a" is the queue of table 1']),
    ],
)
def test_a_mistake_in_a_table_of_queues_names_the_table(tmp_path: Path, table: str, words: list[str]) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(f"[[queues]]\n{table}\n")

    with pytest.raises(OperatorError) as raised:
        load(path)

    for word in words:
        assert word in str(raised.value)


def test_a_queue_has_the_general_policy_with_what_its_table_says() -> None:
    settings = made(
        queue_max_messages=5,
        max_attempts=2,
        slow_subscriber="drop-oldest",
        queues=[{"name": "jobs", "max_attempts": 7}, {"name": "logs", "queue_max_messages": 0}],
    )
    policies = settings.policies()

    found = {name: policies.find(parse_topic_name(f"/queue/{name}")) for name in ("jobs", "logs", "other")}
    assert [(each.queue_max_messages, each.delivery.max_attempts, each.is_declared) for each in found.values()] == [
        (5, 7, True),
        (0, 2, True),
        (5, 2, False),
    ]
    assert {each.slow_subscriber for each in found.values()} == {SlowSubscriber.BLOCK}
    assert policies.find(parse_topic_name("/topic/jobs")).slow_subscriber is SlowSubscriber.DROP_OLDEST
