"""The report on the delivery ledger: what became of every delivery, computed by Spark from the lake.

It knows of the broker nothing but the lake's two tables (`lake_schema.py`), and never imports it. `session.py` starts
Spark on a Java that `java.py` finds; `lake.py` reads; `records.py`, `figures.py`, `hours.py`, `failures.py`,
`duplicates.py`, `backlog.py` and `changes.py` are the steps, frames in and frames out, with `schemas.py` as their
contract; `tables.py` puts them together; `excerpts.py` and `assembly.py` make `content.py` of them, which
`json_report.py` and `page.py` write down; `job.py` runs it all. Nothing is imported here, so that naming the package
costs nothing.
"""
