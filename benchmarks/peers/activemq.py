"""ActiveMQ Classic with its STOMP connector.

A separate instance with configuration and data in a temporary directory, run from the package's jar; the package's
service is not touched.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.dialect import Dialect
from benchmarks.disk_directory import disk_directory
from benchmarks.peers.debian_package import installed_package
from benchmarks.peers.free_port import free_address
from benchmarks.peers.peer import Ability, Installed, Missing, Peer
from benchmarks.peers.peer_process import Launch, PeerProcess, running_peer

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOME: Final = Path("/usr/share/activemq")
_JAR: Final = _HOME / "bin" / "activemq.jar"
#: The package's default is 512 MiB.
_HEAP: Final = ("-Xms2G", "-Xmx2G")

_DIALECT: Final = Dialect(
    stored=(("persistent", "true"),),
    prefetch=(("activemq.prefetchSize", "1000"),),
)

_BROKER: Final = """\
<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
  http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="benchmark" useJmx="false"
      dataDirectory="{data}" schedulerSupport="false" advisorySupport="false">
    <persistenceAdapter><kahaDB directory="{data}/kahadb"/></persistenceAdapter>{more}
    <systemUsage><systemUsage>
      <memoryUsage><memoryUsage percentOfJvmHeap="70"/></memoryUsage>
      <storeUsage><storeUsage limit="20 gb"/></storeUsage>
      <tempUsage><tempUsage limit="5 gb"/></tempUsage>
    </systemUsage></systemUsage>
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{port}?maximumConnections=10000"/>
    </transportConnectors>
  </broker>
</beans>
"""

_CONFIGURATION: Final = f"""\
java {" ".join(_HEAP)}, activemq.xml:

{_BROKER.format(port="PORT", data="DATA", more="")}
The package's own configuration with the STOMP connector instead of OpenWire, a larger heap, as much of it for messages
as ActiveMQ's shipped example has, and without JMX, advisories and the scheduler, which nobody here asks for. KahaDB is
as it comes: the journal is synced to disk for every stored message. No limit on what waits for a slow subscriber:
publishers are held back, and nothing is dropped. Frames: `persistent:true` on what has to be stored,
`activemq.prefetchSize:1000` where messages are acknowledged, as ours has it (its own for durable subscribers is 100).
"""


def _installed() -> Installed | Missing:
    if shutil.which("java") is None:
        return Missing("apt-get install --no-install-recommends activemq default-jre-headless (there is no java)")
    return installed_package("activemq", needs=_JAR)


@contextmanager
def running_activemq(more: str = "", dialect: Dialect = _DIALECT) -> Iterator[PeerProcess]:
    """With these further elements in its configuration."""
    address = free_address(dialect)
    with disk_directory("activemq-benchmark-") as directory:
        broker = Path(directory, "activemq.xml")
        broker.write_text(_BROKER.format(port=address.port, data=directory, more=more))
        launch = Launch(command=_command(directory, broker), address=address, data=directory)
        with running_peer(launch) as target:
            yield target


def _command(directory: Path, broker: Path) -> tuple[str, ...]:
    return (
        "java",
        *_HEAP,
        f"-Djava.io.tmpdir={directory}",
        f"-Dactivemq.home={_HOME}",
        f"-Dactivemq.base={directory}",
        f"-Dactivemq.conf={directory}",
        f"-Dactivemq.data={directory}",
        "-jar",
        str(_JAR),
        "start",
        f"xbean:{broker.as_uri()}",
    )


ACTIVEMQ: Final = Peer(
    name="activemq",
    title="ActiveMQ Classic",
    configuration=_CONFIGURATION,
    installed=_installed,
    open=lambda _settings: running_activemq(),
    why_not={Ability.REDELIVERY: "a message refused by NACK goes to its dead letters at once"},
)
