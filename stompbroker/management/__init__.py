"""The management endpoint: an HTTP API, metrics, health and a live page.

Law: it looks and acts through `control`. A client that is slow, wrong or hostile harms nobody but itself.
"""

from stompbroker.management.server import Management, answer_on_standby, open_management

__all__ = ["Management", "answer_on_standby", "open_management"]
