"""Wrong logins by address, counted for a minute.

Law: bounded, whatever addresses there are; no clock inside.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

from stompbroker.clock import NANOSECONDS

#: How long wrong logins count, from the first of them on.
WINDOW_NS: Final = 60 * NANOSECONDS
#: Addresses that are remembered, at about 300 bytes each; beyond that the oldest is forgotten.
MAX_ADDRESSES: Final = 10_000
#: What one customer of a provider has of IPv6.
_IPV6_PREFIX: Final = 64


@lru_cache(maxsize=1024)  # asked twice for every connection, often of a flood from one address
def network_of(address: str) -> str:
    """What one person has: an address of IPv4, a /64 of IPv6; anything else is taken as it is."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _IPV6_PREFIX), strict=False))


@dataclass(slots=True)
class _Count:
    began_at_ns: int
    failures: int = 0


@final
class LoginFailures:
    """Invariant: counts are in the order in which they began, and at most MAX_ADDRESSES."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[str, _Count] = {}

    def note(self, network: str, now_ns: int) -> None:
        if not self.count(network, now_ns):
            self._counts.pop(network, None)
            if len(self._counts) >= MAX_ADDRESSES:
                del self._counts[next(iter(self._counts))]
            self._counts[network] = _Count(now_ns)
        self._counts[network].failures += 1

    def count(self, network: str, now_ns: int) -> int:
        found = self._counts.get(network)
        return found.failures if found is not None and now_ns - found.began_at_ns < WINDOW_NS else 0

    def are_too_many(self, network: str, now_ns: int) -> bool:
        return self.count(network, now_ns) >= self._limit

    def check_invariants(self) -> None:
        began = [count.began_at_ns for count in self._counts.values()]
        assert began == sorted(began)
        assert len(began) <= MAX_ADDRESSES
