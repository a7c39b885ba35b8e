"""What the run against brokers of others says about what it has seen."""

from __future__ import annotations

from soak.foreign.kills import KillsOutcome, Seen


def outcome(seen: Seen, *, is_atomic: bool = True, has_stalled: bool = False) -> KillsOutcome:
    return KillsOutcome(kills=1, elapsed_s=1.0, seen=seen, is_atomic=is_atomic, has_stalled=has_stalled)


def seen_well() -> Seen:
    seen = Seen()
    for name in seen.confirmed:
        seen.made[name] = 20
        seen.confirmed[name] = list(range(1, 21))
        seen.received[name] = [*range(1, 21), 3, 7]
    return seen


def test_what_came_twice_is_no_fault() -> None:
    assert outcome(seen_well()).complaints() == []


def test_each_fault_is_told() -> None:
    seen = seen_well()
    seen.received["topic"] = [1, 3, 2, *range(5, 22)]
    seen.unknown.append(range(19, 25))
    seen.lost.append(range(1, 11))
    seen.wrong_answers = 2

    assert outcome(seen, has_stalled=True).complaints() == [
        "STALLED: not everything that was confirmed has come",
        "LOST, topic: 1 messages, 4 for instance",
        "INVENTED, topic: 1 messages, 21 for instance",
        "DISORDERED, topic: 1 messages, 2 for instance",
        "TORN: 1 transactions",
        "UNDEAD: 1 transactions that were said to be lost",
        "WRONG: 2 calls got another's answer",
    ]


def test_a_broker_that_does_not_promise_it_may_do_a_transaction_in_part() -> None:
    seen = seen_well()
    seen.unknown.append(range(19, 25))

    assert outcome(seen, is_atomic=False).complaints() == []
