"""How our broker grows: with subscribers, with topics, with the size of bodies, and over time.

Law: each series varies one thing and leaves all others as they are; a point is an ordinary scenario, measured in
interleaved rounds like all others. The long run is one scenario at a fixed rate, looked at again and again: what a
message costs must not depend on how many there were before it.

    python -m benchmarks.scaling                   # all series, three rounds, and a long run of two minutes
    python -m benchmarks.scaling --minutes 60 --only long-run

    command_line ──► series, long_run ──► results ──► page (Markdown), plots (SVG)
"""
