"""Turns are given out fairly, and nobody is kept waiting by somebody else's hang."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from runners.leftovers import eventually
from satchel.runners.queue import FairQueue, Ticket


class Cancel:
    """Taken back by `now`."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def fileno(self) -> int:
        return self._read

    def now(self) -> None:
        os.write(self._write, b"!")

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.fixture
def cancel():
    made = Cancel()
    yield made
    made.close()


def enter(queue: FairQueue, skill: str, wait: float = 5.0, **more) -> Ticket:
    ticket = queue.enter(skill, wait, **more)
    assert isinstance(ticket, Ticket), ticket
    return ticket


class Waiting:
    """Calls that wait in threads, and the order in which their turns came."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue = queue
        self.order: list[str] = []
        self.tickets: list[Ticket] = []
        self.threads: list[threading.Thread] = []

    def add(self, skill: str) -> None:
        waiting = self.queue.counts()[2]

        def wait() -> None:
            ticket = self.queue.enter(skill, 5.0)
            assert isinstance(ticket, Ticket)
            self.order.append(skill)
            self.tickets.append(ticket)

        self.threads.append(threading.Thread(target=wait))
        self.threads[-1].start()
        assert eventually(lambda: self.queue.counts()[2] == waiting + 1)

    def serve_all(self) -> list[str]:
        """Let one turn end after the other."""
        for count in range(1, len(self.threads) + 1):
            assert eventually(lambda count=count: len(self.order) == count)
            self.queue.leave(self.tickets[count - 1])
        for thread in self.threads:
            thread.join()
        return self.order


def test_a_free_slot_costs_no_waiting():
    queue = FairQueue(4)
    ticket = enter(queue, "a")
    assert ticket.waited == 0.0
    assert queue.counts() == (1, 0, 0)
    queue.leave(ticket)
    assert queue.counts() == (0, 0, 0)


def test_skills_take_turns_whatever_the_length_of_their_queues():
    queue = FairQueue(1)
    first = enter(queue, "busy")
    waiting = Waiting(queue)
    for skill in ("busy", "busy", "busy", "b", "c", "b"):
        waiting.add(skill)
    queue.leave(first)
    assert waiting.serve_all() == ["busy", "b", "c", "busy", "b", "busy"]
    assert queue.counts() == (0, 0, 0)


def test_who_has_nothing_under_way_comes_before_who_has_something():
    queue = FairQueue(4)
    held = [enter(queue, "hung"), *(enter(queue, name) for name in "abc")]
    waiting = Waiting(queue)
    for skill in ("hung", "d", "e", "f", "g"):
        waiting.add(skill)
    queue.leave(held.pop())
    assert waiting.serve_all() == ["d", "e", "f", "g", "hung"]
    for ticket in held:
        queue.leave(ticket)


def test_one_skill_has_at_most_half_of_the_slots():
    queue = FairQueue(4)
    tickets = [enter(queue, "busy") for _ in range(2)]
    assert queue.enter("busy", 0.05) == "timeout"
    tickets += [enter(queue, "other"), enter(queue, "third")]
    assert queue.enter("fourth", 0.05) == "timeout"
    for ticket in tickets:
        queue.leave(ticket)
    assert queue.counts() == (0, 0, 0)


def test_a_skill_may_want_fewer_than_its_share():
    queue = FairQueue(8)
    ticket = enter(queue, "a", most=1)
    assert queue.enter("a", 0.02, most=1) == "timeout"
    queue.leave(ticket)
    queue.leave(enter(queue, "a", most=1))


def test_a_call_that_runs_long_steps_aside():
    queue = FairQueue(2, patience=0.15)
    hung = [enter(queue, "hung"), enter(queue, "hangs too")]
    began = time.monotonic()
    ticket = enter(queue, "quick")
    assert 0.1 < time.monotonic() - began < 1.0
    assert queue.counts()[:2] == (1, 2) or queue.counts()[:2] == (1, 1)
    for each in (*hung, ticket):
        queue.leave(each)
    assert queue.counts() == (0, 0, 0)


def test_calls_aside_are_bounded_and_count_for_their_skill():
    queue = FairQueue(2, patience=0.05)
    tickets = [enter(queue, name) for name in "abcd"]
    assert queue.counts()[:2] == (2, 2)
    assert queue.enter("e", 0.3) == "timeout"  # two run, two are aside: that is all
    queue.leave(tickets.pop())
    assert queue.enter("a", 0.3) == "timeout"  # its share is one, and that is aside
    for ticket in tickets:
        queue.leave(ticket)


def test_waiting_ends_in_time():
    queue = FairQueue(1)
    ticket = enter(queue, "a")
    began = time.monotonic()
    assert queue.enter("b", 0.2) == "timeout"
    assert 0.19 < time.monotonic() - began < 0.6
    assert queue.counts() == (1, 0, 0)
    queue.leave(ticket)


def test_a_call_that_waits_can_be_taken_back(cancel):
    queue = FairQueue(1)
    ticket = enter(queue, "a")
    threading.Timer(0.1, cancel.now).start()
    began = time.monotonic()
    assert queue.enter("b", 5.0, cancel) == "cancelled"
    assert time.monotonic() - began < 1.0
    assert queue.counts() == (1, 0, 0)
    queue.leave(ticket)


def test_a_turn_comes_to_a_call_that_can_be_taken_back(cancel):
    queue = FairQueue(1)
    ticket = enter(queue, "a")
    threading.Timer(0.1, queue.leave, [ticket]).start()
    second = enter(queue, "b", cancel=cancel)
    assert 0.05 < second.waited < 1.0
    queue.leave(second)


def test_closing_sends_everybody_away(cancel):
    queue = FairQueue(1)
    enter(queue, "a")
    said = []
    threads = [
        threading.Thread(target=lambda how=how: said.append(queue.enter("b", 5.0, how)))
        for how in (None, cancel)
    ]
    for thread in threads:
        thread.start()
    assert eventually(lambda: queue.counts()[2] == 2)
    time.sleep(0.05)
    queue.close()
    for thread in threads:
        thread.join(2)
    assert said == ["closed", "closed"]
    assert queue.enter("c", 1.0) == "closed"


def test_many_threads_get_their_turns_and_no_more_than_there_are_slots():
    queue = FairQueue(5)
    running, most, done = [0], [0], []
    lock = threading.Lock()

    def call(number: int) -> None:
        ticket = enter(queue, f"s{number % 7}")
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.001)
        with lock:
            running[0] -= 1
        queue.leave(ticket)
        done.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(200))
    assert most[0] <= 5
    assert queue.counts() == (0, 0, 0)


@pytest.mark.parametrize("cancellable", [False, True])
@pytest.mark.parametrize("turn_came", [False, True])
def test_an_interrupt_while_waiting_gives_the_place_back(cancel, *, cancellable, turn_came):
    queue = FairQueue(2)
    (held,) = [enter(queue, "a")]

    def interrupt(*_given):
        if turn_came:
            queue.leave(held)  # the turn comes, and with it the interrupt
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            queue.enter("a", 5.0, cancel if cancellable else None)
    finally:
        signal.signal(signal.SIGALRM, before)
    if not turn_came:
        queue.leave(held)
    assert queue.counts() == (0, 0, 0)
    queue.leave(enter(queue, "a", 0.1))
    assert queue.counts() == (0, 0, 0)
