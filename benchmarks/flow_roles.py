"""The publisher and subscriber roles in the protocol of the measured broker.

Assignments, reports and clocks are the same in every protocol, so a measurement that takes its roles from the target
works for any broker. Both are module-level functions, because they are sent to other processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.roles import publisher, subscriber

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.roles.child_end import ChildEnd
    from benchmarks.roles.publisher import PublisherAssignment, PublisherReport
    from benchmarks.roles.subscriber import SubscriberAssignment, SubscriberReport


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRoles:
    publish: Callable[[PublisherAssignment, ChildEnd], PublisherReport]
    subscribe: Callable[[SubscriberAssignment, ChildEnd], SubscriberReport]


STOMP_ROLES: Final = FlowRoles(publish=publisher.run, subscribe=subscriber.run)
