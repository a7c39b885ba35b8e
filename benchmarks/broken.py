"""The one error of the benchmarks: something is broken, so that a number would be a lie.

Law: the text is a sentence for the person who reads the report. Slow is never broken.
"""

from __future__ import annotations


class Broken(Exception):
    """Messages lost or doubled, a connection refused or closed, a broker that died or did not answer in time."""
