"""Our broker beside its peers, in one run: `python -m benchmarks.comparison`, or `make bench-peers`.

Law: whatever is said about being faster is a ratio of two figures of one round on one machine. Every broker gets the
same work from the same generator; what it was given for a configuration is shown with the results.

    command_line ──► running ──► sittings (data) ──► the measurements of `benchmarks.measuring`
         │
         └──► results ──► standings ──► goals ──► page (Markdown), plots (SVG)

`results` is all that a run has found. It can be written to a file and read again, so that page and plots can be
made anew without measuring.
"""
