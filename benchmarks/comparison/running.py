"""Runs all brokers through all sittings, in interleaved rounds.

A round runs, for every sitting, every broker in turn: compared figures are measured within a minute or two, and a slow
machine slows all brokers. Only one broker runs at a time. After a fault the sitting goes on with a new instance. What a
broker cannot do, or what broke in the last round, is not tried: a peer may take minutes to break. Each broker has its
own timeout; ours is the same as elsewhere, those of peers are longer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from benchmarks.broken import Broken
from benchmarks.comparison.results import Outcome, Unmeasured
from benchmarks.comparison.sittings import LatencyAtHalf
from benchmarks.measurement import Measurement
from benchmarks.measuring import throughput
from benchmarks.peers.peer import Ability
from benchmarks.rounds import measure
from benchmarks.scenarios import PassedThrough

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.comparison.sittings import Compared, Sitting
    from benchmarks.peers.peer import Peer
    from benchmarks.scenarios import Scenario
    from benchmarks.target import Target

#: The longest measurement, in seconds, if its length can be estimated.
_LONGEST_S: Final = 90.0
#: The scenario that says how fast a broker passes messages on.
_PLAIN: Final = "topic-1-to-1"


@final
class ComparedRound:
    """One round. `broke` is what broke in the last one, by broker and scenario; `announce` is called before each
    measurement, `note` with each outcome."""

    def __init__(
        self,
        number: int,
        *,
        broke: Mapping[tuple[str, str], Unmeasured],
        announce: Callable[[Peer, Compared, int], None],
        note: Callable[[Outcome], None],
    ) -> None:
        self._number = number
        self._broke = broke
        self._announce = announce
        self._note = note
        #: Deliveries per second of this round, by broker and scenario.
        self._rates: dict[tuple[str, str], float] = {}

    def run(self, sittings: Sequence[Sitting], peers: Sequence[Peer]) -> None:
        for sitting in sittings:
            for peer in peers:
                self._sit(sitting, peer)

    def _sit(self, sitting: Sitting, peer: Peer) -> None:
        waiting: deque[Compared] = deque()
        for compared in sitting.compared:
            if not compared.is_measured(peer.name, self._number):
                continue
            if lacking := [ability for ability in compared.needs if ability not in peer.abilities]:
                self._found(peer, compared, Unmeasured(peer.why_not[min(lacking)], is_broken=False))
            elif broken := self._broke.get((peer.name, compared.name)):
                self._found(peer, compared, broken)
            else:
                waiting.append(compared)
        while waiting:
            self._go_through(waiting, sitting, peer)

    def _go_through(self, waiting: deque[Compared], sitting: Sitting, peer: Peer) -> None:
        """Measure with one instance until nothing is left or something breaks; takes from `waiting`."""
        last, has_started = waiting[-1], False
        try:
            with peer.open("") as target:
                if sitting.warm_up is not None and Ability.STREAMING in peer.abilities:
                    throughput.measure(sitting.warm_up, target, peer.stall_s)
                has_started = True
                while waiting:
                    self._announce(peer, waiting[0], self._number)
                    found = self._measure(waiting[0].scenario, peer, target)
                    self._found(peer, waiting.popleft(), found)
        except Broken as broken:
            if not has_started:  # it will not start for the others either
                blamed = list(waiting)
                waiting.clear()
            else:
                blamed = [waiting.popleft() if waiting else last]
            for compared in blamed:
                self._found(peer, compared, Unmeasured(str(broken), is_broken=True))

    def _measure(self, scenario: Scenario | LatencyAtHalf, peer: Peer, target: Target) -> Measurement | Unmeasured:
        """Raises `Broken`."""
        if isinstance(scenario, LatencyAtHalf):
            maximum = self._rates.get((peer.name, scenario.of))
            if maximum is None:
                return Unmeasured("its maximum could not be measured", is_broken=False)
            scenario = scenario.at_half_of(maximum)
        elif isinstance(scenario, PassedThrough):
            rate = self._rates.get((peer.name, _PLAIN))
            if rate is not None and scenario.messages / rate > _LONGEST_S:
                minutes = scenario.messages / rate / 60
                return Unmeasured(f"would take {minutes:.0f} minutes at its {rate:,.0f}/s", is_broken=False)
        return measure(scenario, target, peer.stall_s, lambda _detail: None)

    def _found(self, peer: Peer, compared: Compared, found: Measurement | Unmeasured) -> None:
        if isinstance(found, Measurement):
            for figure in found.figures:
                if figure.name == throughput.DELIVERIES:
                    self._rates[peer.name, compared.name] = figure.value
        self._note(Outcome(contestant=peer.name, scenario=compared.name, round_number=self._number, found=found))
