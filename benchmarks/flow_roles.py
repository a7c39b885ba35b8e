"""Who publishes and who subscribes, in the protocol of the broker that is measured.

Law: whatever the protocol, the assignments and the reports are the same, and so is when a clock starts and stops; a
measurement that takes its roles from its target measures any broker. Both are functions of a module, because they are
sent to the processes that play them.
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
