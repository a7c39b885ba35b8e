"""The circumstances of a run: time, machine, commit, and installed brokers. Measures nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from benchmarks.comparison.machine import this_commit, this_machine
from benchmarks.comparison.results import Contestant, Results
from benchmarks.peers.peer import Installed, Missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.peers.peer import Peer


def begun(peers: Sequence[Peer], *, rounds: int, is_quick: bool) -> Results:
    """Results without any outcome yet."""
    return Results(
        started_at=datetime.now(UTC).isoformat(sep=" ", timespec="minutes"),
        took_s=0.0,
        commit=this_commit(),
        rounds=rounds,
        is_quick=is_quick,
        machine=this_machine(),
        contestants=tuple(map(_contestant, peers)),
        outcomes=(),
    )


def _contestant(peer: Peer) -> Contestant:
    match peer.installed():
        case Installed(version):
            return Contestant(name=peer.name, title=peer.title, version=version, configuration=peer.configuration)
        case Missing(how_to_install):
            return Contestant(name=peer.name, title=peer.title, version="", missing=how_to_install)
