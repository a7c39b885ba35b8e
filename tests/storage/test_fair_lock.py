"""Whoever waits gets the lock next."""

from __future__ import annotations

import threading

from stompbroker.storage.sqlite.checkpoints import FairLock


def test_only_one_is_inside() -> None:
    turns = FairLock()
    inside = most = 0

    def enter_often() -> None:
        nonlocal inside, most
        for _ in range(200):
            with turns:
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=enter_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert most == 1


def test_who_never_rests_lets_others_in() -> None:
    turns = FairLock()
    has_been_inside = threading.Event()
    entered = threading.Event()

    def never_rest() -> None:
        while not has_been_inside.is_set():
            with turns:
                entered.set()

    restless = threading.Thread(target=never_rest)
    restless.start()
    entered.wait()
    for _ in range(100):
        with turns:
            pass
    has_been_inside.set()
    restless.join()


def test_it_is_let_go_when_the_block_fails() -> None:
    turns = FairLock()
    try:
        with turns:
            raise ValueError
    except ValueError:
        pass

    with turns:
        pass
