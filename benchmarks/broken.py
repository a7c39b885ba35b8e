"""The one error of the benchmarks: something is broken, so a number would be wrong.

Its text is a sentence for the reader of the report. Slow is never broken.
"""

from __future__ import annotations


class Broken(Exception):
    """Messages lost or doubled, a connection refused or closed, a broker that died or did not answer in time."""
