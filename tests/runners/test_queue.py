"""The queue: bounded, in order, and turns are always returned."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

from runners.leftovers import eventually
from satchel.runners.pool import CallQueue, Ticket


def enter(queue: CallQueue, skill: str, wait: float = 5.0, **more) -> Ticket:
    ticket = queue.enter(skill, wait, **more)
    assert isinstance(ticket, Ticket), ticket
    return ticket


class Waiting:
    """Calls that wait in threads, in the order in which they were added."""

    def __init__(self, queue: CallQueue) -> None:
        self.queue = queue
        self.said: list[tuple[str, object]] = []
        self.threads: list[threading.Thread] = []
        self.left = 0

    def add(self, skill: str, cancel: Any = None) -> None:
        waiting = self.queue.counts()[1]

        def wait() -> None:
            self.said.append((skill, self.queue.enter(skill, 5.0, cancel)))

        self.threads.append(threading.Thread(target=wait))
        self.threads[-1].start()
        assert eventually(lambda: self.queue.counts()[1] == waiting + 1)

    def served(self, count: int) -> list[str]:
        """The skills in the order of their turns, so many of them; one ends after the other."""
        for number in range(self.left, count):
            assert eventually(lambda number=number: len(self.said) == number + 1)
            ticket = self.said[-1][1]
            assert isinstance(ticket, Ticket)
            self.queue.leave(ticket)
        self.left = count
        return [skill for skill, _ in self.said]

    def join(self) -> None:
        for thread in self.threads:
            thread.join()


def test_calls_are_served_in_order_and_a_full_skill_is_passed_over():
    queue = CallQueue(4)
    held = [enter(queue, name) for name in ("busy", "busy", "a", "b")]
    assert queue.enter("c", 0.02) == "timeout"  # every slot is taken
    waiting = Waiting(queue)
    for skill in ("busy", "c", "d", "a"):
        waiting.add(skill)
    queue.leave(held.pop())
    assert waiting.served(3) == ["c", "d", "a"]
    queue.leave(held.pop(0))
    assert waiting.served(4)[3:] == ["busy"]
    waiting.join()
    for ticket in held:
        queue.leave(ticket)
    assert queue.counts() == (0, 0)


def test_a_call_that_waits_can_be_taken_back(cancel):
    queue = CallQueue(1)
    ticket = enter(queue, "a")
    waiting = Waiting(queue)
    waiting.add("b", cancel)
    cancel.now()
    waiting.join()
    assert waiting.said == [("b", "cancelled")]
    assert queue.counts() == (1, 0)
    queue.leave(ticket)


@pytest.mark.parametrize("turn_came", [False, True])
def test_an_interrupt_while_waiting_gives_the_place_back(turn_came):
    queue = CallQueue(2)
    held = enter(queue, "a")

    def interrupt(*_given):
        if turn_came:
            queue.leave(held)  # the turn comes, and with it the interrupt
        raise KeyboardInterrupt

    main = threading.get_ident()

    def send():
        while not queue.counts()[1]:
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, interrupt)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            queue.enter("a", 5.0)
    finally:
        sender.join()
        signal.signal(signal.SIGALRM, before)
    if not turn_came:
        queue.leave(held)
    assert queue.counts() == (0, 0)
