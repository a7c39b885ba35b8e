"""How fast the broker is, how much memory it needs, and whether one bad client can spoil it for the others.

`python -m benchmarks` starts the broker as a process of its own for every measurement, drives it over loopback
sockets from further processes, and prints medians over interleaved rounds. README.md beside this file says how to
read the numbers. Nothing here gates anything: the exit code is 0 unless something is broken, which means messages
lost or doubled, a broker that died, or one that broke its word.

    command_line ──► rounds ──► measuring/ (one file per kind of scenario) ──► report
                                    │
                                    ├── broker_process   the broker, watched from outside
                                    └── role_process ──► roles/ (publisher, subscriber, …), one process each

Only `broker_process` knows which broker is measured, and `operating` and `stored`, which look at it as its operator
would; everything else knows an `Address` and STOMP.
"""
