"""Kills the broker, or its database, again and again, to show that nothing with a receipt is ever lost.

`python -m soak` runs real processes; the crash tests in `tests/end_to_end/` run the same parts with fewer kills. Kills
happen at points of progress chosen by a seed, never by a clock, so that a run can be repeated.

    command_line ──► crash_run ──► victim        the process that is killed and brought back
         │               ├──────► publisher     numbers its messages; repeats what has no receipt
         │               ├──────► subscriber    durable; acknowledges one by one, some with receipts
         │               └──────► kill_plan     after which receipt, delivery or acknowledgement to kill
         │           history ──► verdict        what was seen ──► what was broken; pure
         ├──► queue_run ──► crash_run           the same with the members of a queue and of a group
         ├──► long_run                          millions of messages, file size and memory at the end
         └──► through_run ──► passing           millions of messages, files that have to stay small

These parts know STOMP and processes, and nothing of the broker's internals.
"""
