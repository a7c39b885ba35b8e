"""`python -m benchmarks.peers` says which peers are on this machine, and how to install those that are not."""

from benchmarks.peers import PEERS
from benchmarks.peers.peer import Installed, Missing

if __name__ == "__main__":
    for peer in PEERS:
        match peer.installed():
            case Installed(version):
                print(f"{peer.title}: {version}")
            case Missing(how_to_install):
                print(f"{peer.title} is missing: {how_to_install}")
