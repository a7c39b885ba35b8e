"""What the open transactions of a connection keep, by a model."""

from __future__ import annotations

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from stompbroker.errors import PeerViolation
from stompbroker.sessions.gathering import Transactions
from stompbroker.stomp import Frame, Head, Limits, weight_bytes

TRANSACTION_LIMITS: Final = Limits(max_transactions=2, max_transaction_frames=3, max_transaction_bytes=2000)
STEPS: Final = st.tuples(
    st.sampled_from(["begin", "add", "add", "add", "end"]), st.sampled_from("abc"), st.sampled_from([0, 10, 700, 1500])
)


@settings(max_examples=150, derandomize=True, database=None)
@given(steps=st.lists(STEPS, max_size=30))
def test_transactions_do_what_a_dictionary_of_lists_does(steps: list[tuple[str, str, int]]) -> None:
    under_test = Transactions(TRANSACTION_LIMITS)
    model: dict[str, list[Frame]] = {}

    for verb, name, size in steps:
        frame = Frame(Head("SEND", {}, -1), b"x" * size, None)
        refused = None
        ended: list[Frame] | None = None
        try:
            if verb == "begin":
                under_test.begin(name, 0)
            elif verb == "add":
                under_test.add(name, frame)
            else:
                ended = under_test.end(name).frames
        except PeerViolation as violation:
            refused = violation.summary

        assert refused == expected_refusal(model, verb, name, frame)
        if refused is None and verb == "begin":
            model[name] = []
        elif refused is None and verb == "add":
            model[name].append(frame)
        elif refused is None:
            assert ended == model.pop(name)
        assert under_test.open.keys() == model.keys()
        assert all(under_test.find(each).frames == frames for each, frames in model.items())
        assert under_test.size_bytes == sum(weight_bytes(each) for frames in model.values() for each in frames)
        under_test.check_invariants()


def expected_refusal(model: dict[str, list[Frame]], verb: str, name: str, frame: Frame) -> str | None:
    if verb == "begin":
        if name in model:
            return "transaction already open"
        return "too many transactions" if len(model) == TRANSACTION_LIMITS.max_transactions else None
    if name not in model:
        return "unknown transaction"
    if verb == "add":
        if len(model[name]) == TRANSACTION_LIMITS.max_transaction_frames:
            return "transaction too long"
        if sum(map(weight_bytes, [*model[name], frame])) > TRANSACTION_LIMITS.max_transaction_bytes:
            return "transaction too large"
    return None
