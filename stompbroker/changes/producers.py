"""Producers number their messages, so that a SEND which is repeated is not published twice.

Law: a producer is a name of one user, or of all bridges together. It numbers its messages from 1 on, over all its
destinations, and each number is published once. Which of several SENDs with a number that is, is decided when their
batch is formed, since an earlier one may still be refused; the number is stored in the batch of its message. The epoch
says which process of the producer counts: a higher one ends the others.

Numbers of messages that no store has are remembered in memory only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from stompbroker.changes.effects import Appended, Effect
from stompbroker.changes.journal import Unit
from stompbroker.clock import NANOSECONDS
from stompbroker.commitlog import OffsetRanges
from stompbroker.errors import PeerViolation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stompbroker.changes.journal import Journal
    from stompbroker.message import Message

#: How many ranges of numbers a producer may leave out: what an open transaction or a refusal has. Each is 16 bytes of a
#: row that is written with every batch.
MAX_RANGES: Final = 256
#: The owner of all producers that stand for a topic of another broker, whichever bridge their messages come over. No
#: user has this name.
OF_BRIDGES: Final = "bridge:"
#: How many of these there may be: each is a topic of some broker.
MAX_OF_BRIDGES: Final = 100_000
#: How long a producer is remembered that has said that it is done, in seconds: what it has repeated may come once more
#: over a connection that it has lost, and which is read late.
DONE_S: Final = 3600


@final
@dataclass(slots=True, eq=False)
class Producer:
    """
    Invariants:
        what is forming is not taken yet; both are among what was offered
        offered leaves out at most MAX_RANGES ranges of numbers
    """

    owner: str
    name: str
    epoch: int = 1
    #: Numbers of published messages.
    taken: OffsetRanges = field(default_factory=OffsetRanges)
    #: Numbers that the batch which is being written takes.
    forming: OffsetRanges = field(default_factory=OffsetRanges)
    #: Those, and the numbers on their way.
    offered: OffsetRanges = field(default_factory=OffsetRanges)
    used_at_ns: int = 0
    #: When it has said that it is done; None also after a restart.
    done_at_ns: int | None = None

    @property
    def last(self) -> int:
        """Every number up to it was taken; 0 for none."""
        return next((stop - 1 for start, stop in self.taken if start == 1), 0)

    def offer(self, numbers: Sequence[int]) -> None:
        """Messages with these numbers are about to be submitted. Raises PeerViolation if too many are left out."""
        added: list[tuple[int, int]] = []
        for start, stop in _ranges_of(numbers):
            added += self.offered.gaps(start, stop)
            self.offered.add(start, stop)
        if len(self.offered) > MAX_RANGES and self.owner == OF_BRIDGES:
            # What expired on its way, or is of no interest to a bridge, must not stop it. A number that is forgotten
            # may be published twice; one that was taken for published would be lost.
            while len(self.offered) > MAX_RANGES and len(self.taken) > 1:
                start, stop = next(iter(self.taken))
                self.taken.discard(start, stop)
                self.offered.discard(start, stop)
        elif (
            len(self.offered) > MAX_RANGES
            and len(missing := self.offered.gaps(1, max(stop for _, stop in self.offered))) > MAX_RANGES
        ):
            for start, stop in added:
                self.offered.discard(start, stop)
            raise PeerViolation(
                "too many numbers left out",
                f"the producer {self.name!r} has left out {len(missing)} ranges of numbers, from {missing[0][0]} on, "
                f"and may leave out {MAX_RANGES}: send what is missing, or number without gaps",
            )

    def check_invariants(self) -> None:
        for start, stop in self.forming:
            assert not self.taken.common(start, stop)
        for start, stop in (*self.forming, *self.taken):
            assert self.offered.covers(start, stop)
        assert len(self.offered) <= MAX_RANGES + 1


@final
@dataclass(slots=True, eq=False)
class Producers:
    """
    Invariants:
        each user has at most `_max_per_user`, bridges together at most MAX_OF_BRIDGES
    """

    _max_per_user: int
    _idle_ns: int
    _all: dict[tuple[str, str], Producer] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._all.values())

    def restore(self, owner: str, name: str, *, epoch: int, taken: Iterable[tuple[int, int]], used_at_ns: int) -> None:
        producer = self.use(owner, name, epoch, used_at_ns)
        for start, stop in taken:
            producer.taken.add(start, stop)
            producer.offered.add(start, stop)

    def use(self, owner: str, name: str, epoch: int | None, now_ns: int) -> Producer:
        """The producer, which sends in this epoch; None begins a new one. Raises PeerViolation if that is over."""
        producer = self._all.get((owner, name))
        if producer is None:
            most = MAX_OF_BRIDGES if owner == OF_BRIDGES else self._max_per_user
            if self._counts.get(owner, 0) >= most:
                raise PeerViolation(
                    "too many producers",
                    f"there are {most}, which is all a user may have (max_producers); those that send "
                    f"nothing for {self._idle_ns // NANOSECONDS} s go (producer_idle_s)",
                )
            producer = self._all[owner, name] = Producer(owner, name, epoch or 1)
            self._counts[owner] = self._counts.get(owner, 0) + 1
        elif epoch is None:
            producer.epoch += 1
        elif epoch < producer.epoch:
            raise PeerViolation(
                "producer has been replaced",
                f"the producer {name!r} is in epoch {producer.epoch}, and this frame is of epoch {epoch}: another one "
                "has begun to send under this name; stop this one, or begin a new epoch with producer-seq:0",
            )
        else:
            producer.epoch = epoch
        producer.used_at_ns, producer.done_at_ns = now_ns, None
        return producer

    def note_done(self, owner: str, name: str, epoch: int, now_ns: int) -> None:
        """It will send nothing more in this epoch, nor repeat anything."""
        producer = self._all.get((owner, name))
        if producer is not None and producer.epoch == epoch:
            producer.done_at_ns = now_ns

    def forget_idle(self, journal: Journal, now_ns: int) -> None:
        """Let go of those that have sent nothing for long."""
        before_ns, done_before_ns = now_ns - self._idle_ns, now_ns - DONE_S * NANOSECONDS
        idle = [
            each
            for each in self._all.values()
            if each.used_at_ns <= before_ns or (each.done_at_ns is not None and each.done_at_ns <= done_before_ns)
        ]
        if idle:
            journal.submit(Unit([Forgotten(self, [(each, each.used_at_ns) for each in idle])], owes_receipt=False))

    def remove(self, producer: Producer) -> None:
        if self._all.pop((producer.owner, producer.name), None) is not None:
            self._counts[producer.owner] -= 1
            if not self._counts[producer.owner]:
                del self._counts[producer.owner]

    def check_invariants(self) -> None:
        for owner, count in self._counts.items():
            most = MAX_OF_BRIDGES if owner == OF_BRIDGES else self._max_per_user
            assert 0 < count == sum(each == owner for each, _ in self._all) <= most
        for producer in self._all.values():
            producer.check_invariants()


@final
@dataclass(slots=True, eq=False)
class Numbered(Appended):
    """Messages of a producer are published to a topic, without those whose numbers are taken.

    Invariants:
        messages are those that are published, once it is decided which, and all until then
    """

    producer: Producer = field(kw_only=True)
    #: As many as messages.
    numbers: list[int] = field(kw_only=True)
    #: All messages that were sent.
    _sent: list[Message] = field(init=False)
    #: The numbers of those that are published; None until that is decided.
    taking: OffsetRanges | None = field(init=False, default=None)
    #: Whether each of them is published.
    is_new: list[bool] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        Appended.__post_init__(self)
        self._sent = self.messages

    def reserve(self) -> None:
        self._decide()
        if self.messages:
            Appended.reserve(self)

    def release(self) -> None:
        Appended.release(self)
        if self.taking is not None:
            for start, stop in self.taking:
                self.producer.forming.discard(start, stop)
            self.taking, self.messages = None, self._sent

    def apply(self, now_ns: int) -> None:
        if self.taking is None:  # nothing of its unit is stored
            self._decide()
        for start, stop in self.taking or ():
            self.producer.forming.discard(start, stop)
            self.producer.taken.add(start, stop)
        Appended.apply(self, now_ns)

    def undo(self, now_ns: int, reason: str) -> None:
        Appended.undo(self, now_ns, reason)
        for number in self.numbers:
            if number not in self.producer.taken:
                self.producer.offered.discard(number, number + 1)

    def _decide(self) -> None:
        self.taking, self.is_new = OffsetRanges(), []
        for start, stop in _ranges_of(self.numbers):
            if not self._take(start, stop):
                for number in range(start, stop):
                    self._take(number, number + 1)
        if not all(self.is_new):
            self.messages = [message for message, is_new in zip(self._sent, self.is_new, strict=True) if is_new]

    def _take(self, start: int, stop: int) -> bool:
        """Decide about these numbers; false if that is only possible one by one."""
        producer, taking = self.producer, self.taking
        assert taking is not None
        is_new = not producer.taken.common(start, stop) and not producer.forming.common(start, stop)
        if is_new:
            for each in (taking, producer.forming, producer.offered):
                each.add(start, stop)
        elif stop - start > 1:
            return False
        self.is_new += [is_new] * (stop - start)
        return True


@final
@dataclass(slots=True, eq=False)
class Introduced(Effect):
    """A producer begins an epoch, before it sends anything."""

    producer: Producer

    def apply(self, now_ns: int) -> None:
        """Its epoch counts since it came."""


@final
@dataclass(slots=True, eq=False)
class Forgotten(Effect):
    """These producers have sent nothing for long; with when each was used last."""

    _producers: Producers
    idle: list[tuple[Producer, int]]

    def apply(self, now_ns: int) -> None:
        for producer, used_at_ns in self.idle:
            # One that is used again meanwhile has a unit behind this one, which writes its row anew.
            if producer.used_at_ns == used_at_ns:
                self._producers.remove(producer)


def _ranges_of(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """The numbers in their order, with those that follow each other as one range: mostly that is all of them."""
    if not numbers:
        return []
    first, stop = numbers[0], numbers[0] + len(numbers)
    if numbers[-1] == stop - 1 and numbers == list(range(first, stop)):
        return [(first, stop)]
    found = [(first, first + 1)]
    for number in numbers[1:]:
        start, stop = found[-1]
        if number == stop:
            found[-1] = start, number + 1
        else:
            found.append((number, number + 1))
    return found
