"""`python -m stompbroker` is the `stompbroker` command."""

from stompbroker.cli import main

if __name__ == "__main__":
    main()
