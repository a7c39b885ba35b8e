"""The command line, a file per command.

Law: a command reads its arguments, calls the library and shows the result: on stdout, with notes on stderr. Exit
codes: 0 done, 1 no broker or a refusal, 2 something the operator has to mend, 130 interrupted; `report` has more.

Heavy modules are imported inside functions, so that `stompbroker --help` is quick
(test_help_imports_neither_trio_nor_pydantic). Here nothing is imported that the writing process does not need: it is
forked from what is there when `serve` is called.
"""

import gc as cycles  # `gc` is a command here
import os
import sys
from contextlib import ExitStack
from io import FileIO, TextIOWrapper

__all__ = ["main"]

#: The command that needs the writing process.
_SERVE = "serve"


def main() -> None:
    _open_closed_streams()
    # Behind "--", too; there is no option before a command that does more than show something.
    called = [argument for argument in sys.argv[1:] if argument != "--"][:1]
    with ExitStack() as until_end:
        forked = None
        if called == [_SERVE]:
            # The first searches for reference cycles would look through every module again and again, for 60 ms in all.
            cycles.disable()
            from stompbroker.heap import keep_freed_memory
            from stompbroker.storage import forked_writing_process

            keep_freed_memory()  # in the fork, too
            # It is a fork, so it must come before there is a second thread; and before the settings, which say whether
            # it has anything to do: what is imported for them, it need not have.
            forked = until_end.enter_context(forked_writing_process())
        from stompbroker.cli.application import ALL, make_application
        from stompbroker.cli.terminal import complain
        from stompbroker.errors import OperatorError

        application = make_application(ALL if set(called).isdisjoint(ALL) else called)
        try:
            application(prog_name="stompbroker", obj=forked)
        except OperatorError as error:
            complain(str(error))
            sys.exit(2)


def _open_closed_streams() -> None:
    """Without this, what is opened next, a client's socket or a file of the store, would get the number of a standard
    stream that was closed (`2>&-`), and the lines that libraries in C write there."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, TextIOWrapper(FileIO(number, "w" if number else "r")))
