"""The management endpoint: an HTTP API, metrics, health and a live page.

Law: looks and acts through `control` only. It runs beside the broker and is nobody's hot path: a client of it that is
slow, wrong or hostile costs itself alone. Neighbours import from here only.
"""

from stompbroker.management.access import Access
from stompbroker.management.server import Management, open_management

__all__ = ["Access", "Management", "open_management"]
