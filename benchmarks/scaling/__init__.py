"""How our broker scales: with subscribers, topics, the size of bodies, and time.

Each series varies one parameter; a point is an ordinary scenario, measured in interleaved rounds. The long run is one
scenario at a fixed rate, sampled repeatedly: the cost of a message must not depend on how many came before it.

    python -m benchmarks.scaling                   # all series, three rounds, and a long run of two minutes
    python -m benchmarks.scaling --minutes 60 --only long-run

    command_line ──► series, long_run ──► results ──► page (Markdown), plots (SVG)
"""
