"""The report on the delivery ledger: what became of every delivery, computed by Spark from the lake.

It never imports the broker: all it knows of it are the lake's two tables (`lake_schema.py`). `job.py` runs everything.

- `session.py` starts Spark, on a Java that `java.py` finds; `lake.py` reads the lake.
- `records.py`, `figures.py`, `failures.py`, `backlog.py` and `changes.py` are the steps, from frames to frames;
  `schemas.py` has their columns, and `tables.py` puts them together.
- `sinks.py` writes the marts; `excerpts.py` reads the rows to show, and `assembly.py` makes `content.py` of them.
- `json_report.py` and `page.py` write that down.

This file imports nothing, so naming the package costs nothing.
"""
