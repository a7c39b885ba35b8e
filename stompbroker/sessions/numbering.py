"""How a producer numbers its messages: the headers `producer`, `producer-epoch` and `producer-seq`.

Law: headers in, values out, or a PeerViolation that names the header and what is allowed. What a number means is in
`changes/producers.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stompbroker.errors import PeerViolation
from stompbroker.sessions.headers import check_name, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Numbers and epochs of producers: 18 digits, so that a step further still has 64 bits.
MAX_NUMBER: Final = 10**18 - 1


class Numbering(NamedTuple):
    producer: str
    #: None begins a new one.
    epoch: int | None
    #: Whether a bridge has numbered it, by where it was published first: all bridges have one name space.
    is_of_bridge: bool = False


def read_numbering(headers: Mapping[str, str]) -> Numbering | None:
    """None if the SEND is not numbered. Raises PeerViolation."""
    given = [name for name in ("producer", "producer-epoch", "producer-seq") if name in headers]
    if not given:
        return None
    for name in ("producer", "producer-seq"):
        if name not in headers:
            raise PeerViolation(
                f"missing header {name!r}",
                f"there is {given[0]!r}: a producer that numbers its messages gives producer, producer-epoch and "
                "producer-seq; leave all of them out to send without numbers",
            )
    producer = check_name("producer", headers["producer"])
    if "producer-epoch" not in headers:
        return Numbering(producer, None)
    return Numbering(producer, whole_number("producer-epoch", headers["producer-epoch"], 1, MAX_NUMBER))


def read_done(headers: Mapping[str, str]) -> tuple[str, int] | None:
    """Of DISCONNECT: the name and epoch of the producer that is done. Raises PeerViolation."""
    if "producer" not in headers:
        return None
    epoch = whole_number("producer-epoch", headers.get("producer-epoch", ""), 1, MAX_NUMBER)
    return check_name("producer", headers["producer"]), epoch


def read_numbers(sequences: Sequence[str], numbering: Numbering) -> tuple[list[int], PeerViolation | None]:
    """The values of `producer-seq` up to the first that is wrong, and what is wrong with it."""
    joined = "".join(sequences)
    if numbering.epoch is not None and joined.isascii() and joined.isdigit() and max(map(len, sequences)) <= 18:
        return list(map(int, sequences)), None  # as they all are, mostly
    numbers: list[int] = []
    try:
        for sequence in sequences:
            number = whole_number("producer-seq", sequence, 0, MAX_NUMBER)
            if number and numbering.epoch is None:
                raise PeerViolation(
                    "missing header 'producer-epoch'",
                    f"the message numbered {number} of the producer {numbering.producer!r} does not say which epoch it "
                    "is of: begin one with producer-seq:0, whose RECEIPT names it, or choose 1 and one more at each "
                    "start",
                )
            numbers.append(number)
    except PeerViolation as violation:
        return numbers, violation
    return numbers, None
