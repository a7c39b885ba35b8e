"""Bodies that say which SEND they came from.

The body alone identifies the publication and its length, so that nothing depends on headers the broker could change.
Long and short ones alternate; a few are larger than any buffer on the way.
"""

from __future__ import annotations

import re
from typing import Final

from soak.history import Publication
from soak.stomp_client import Misbehaved

_BODY: Final = re.compile(rb"(\d+) (\d+) (\d+) (\d+) (x*)")
_COMMON_BYTES: Final = 200
#: One in so many messages is large, and how large.
_LARGE_EVERY: Final = 499
_LARGE_BYTES: Final = 300_000


def body_of(publication: Publication) -> bytes:
    padding = _LARGE_BYTES if publication.number % _LARGE_EVERY == 0 else publication.number * 37 % _COMMON_BYTES
    return b"%d %d %d %d %b" % (*publication, padding, b"x" * padding)


def publication_in(body: bytes) -> Publication:
    found = _BODY.fullmatch(body)
    if found is None or len(found[5]) != int(found[4]):
        raise Misbehaved(f"a body of {len(body)} bytes that nobody sent: {body[:100]!r}")
    return Publication(int(found[1]), int(found[2]), int(found[3]))
