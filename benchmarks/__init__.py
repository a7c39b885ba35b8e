"""How fast the broker is, how much memory it needs, and whether one bad client disturbs others.

`python -m benchmarks` starts a broker process for every measurement, drives it over loopback sockets from other
processes, and prints medians over interleaved rounds. README.md says how to read the numbers. The exit code is 0 unless
something is broken: messages lost or doubled, a broker that died, or a policy that was not kept.

    command_line ──► rounds ──► measuring/ (one file per kind of scenario) ──► report
                                    │
                                    ├── broker_process   the broker, watched from outside
                                    └── role_process ──► roles/ (publisher, subscriber, …), one process each

Only `broker_process`, `operating` and `stored` know which broker is measured; everything else knows an `Address` and
STOMP.
"""
