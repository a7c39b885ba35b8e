"""Our broker beside its peers, in one run: `python -m benchmarks.comparison`, or `make bench-peers`.

A statement about being faster is always a ratio of two figures of one round on one machine. Every broker gets the same
work from the same generator; its configuration is shown with the results.

    command_line ──► running ──► sittings (data) ──► the measurements of `benchmarks.measuring`
         │
         └──► results ──► standings ──► goals ──► page (Markdown), plots (SVG)

`results` is everything a run has found. It can be saved and loaded, so that page and plots can be made again without
measuring.
"""
