"""Whatever happens in whatever order, with retries and a limiter everything is counted once and comes to an end."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from tests.coordinators import assert_adds_up

from ephemerals import KeyedWorkCoordinator, Lane, PriorityWorkCoordinator, ResultCoordinator, WorkCoordinator
from ephemerals.atoms import GCRA, RetryPolicy, SlidingWindowLimiter, TokenBucket
from ephemerals.testing import assert_quiet, run


def key_of(item):
    return item[1]


LANES = (Lane("hot", max_concurrency=1), Lane("normal"))
MAKERS = {
    "work": WorkCoordinator,
    "keyed": partial(KeyedWorkCoordinator, key_of),
    "fair": partial(KeyedWorkCoordinator, key_of, fair_scheduling=True),
    "result": partial(ResultCoordinator, key=key_of),
    "lanes": partial(PriorityWorkCoordinator, lanes=LANES),
    "keyed lanes": partial(PriorityWorkCoordinator, lanes=LANES, key=key_of),
}
LIMITERS = {
    "none": lambda: None,
    "bucket": lambda: TokenBucket(2, burst=3),
    "gcra": lambda: GCRA(3),
    "window": lambda: SlidingWindowLimiter(2, window=1),
}
ITEMS = st.tuples(
    st.just("enqueue"),
    st.sampled_from("abc"),
    st.integers(0, 4),  # how often it fails
    st.sampled_from([0, 0.3, 2]),  # how long an attempt takes
    st.sampled_from(["hot", "normal"]),
)
STEPS = st.one_of(
    ITEMS,
    ITEMS,
    ITEMS,
    st.tuples(st.just("sleep"), st.sampled_from([0, 0, 0.1, 1, 5])),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.just("limit"), st.integers(1, 4)),
    st.tuples(st.just("pause")),
    st.tuples(st.just("resume")),
)


class World:
    """Run steps against a coordinator, and watch that its promises are kept."""

    def __init__(self, maker, limiter, overflow):
        self.maker, self.limiter = maker, LIMITERS[limiter]()
        policy = RetryPolicy(attempts=3, initial=0.5, jitter=False)
        options = {"retry": policy, "limiter": self.limiter, "max_concurrency": 2, "max_pending": 4}
        self.coordinator = MAKERS[maker](self.body, overflow=overflow, operation_timeout=1, **options)
        self.numbers = itertools.count()
        self.operations = []
        self.attempts = {}
        self.started = []
        self.running = {}
        self.cancelled = set()

    async def body(self, item, operation):
        number, key, failures, seconds = item
        attempt = self.attempts[number] = self.attempts.get(number, 0) + 1
        assert attempt == operation.attempt <= 3
        assert number not in self.cancelled
        assert len(self.running) < 4
        if attempt == 1:
            self.started.append(item)
        if "keyed" in self.maker or self.maker in {"fair", "result"}:
            assert key not in self.running.values()
        self.running[number] = key
        try:
            await asyncio.sleep(seconds)
        finally:
            del self.running[number]
        if attempt <= failures:
            raise OSError
        return number

    def step(self, what, *arguments):
        coordinator = self.coordinator
        if what == "enqueue":
            key, failures, seconds, lane = arguments
            item = (next(self.numbers), key, failures, seconds)
            lanes = {"lane": lane} if "lanes" in self.maker else {}
            operation = coordinator.try_enqueue(item, **lanes)
            if operation is not None:
                self.operations.append((item, operation))
        elif what == "cancel" and arguments[0] < len(self.operations):
            item, operation = self.operations[arguments[0]]
            if operation.status == "pending" and operation.cancel():
                self.cancelled.add(item[0])
            else:
                operation.cancel()
        elif what == "limit":
            coordinator.set_max_concurrency(*arguments)
        elif what in {"pause", "resume"}:
            getattr(coordinator, what)()

    async def play(self, steps, end):
        for what, *arguments in steps:
            self.step(what, *arguments)
            assert_adds_up(self.coordinator)
            if what == "sleep":
                await asyncio.sleep(*arguments)
                assert_adds_up(self.coordinator)
        if end == "drain":
            report = await self.coordinator.drain()
        elif end == "cancel":
            report = await self.coordinator.cancel()
        else:
            report = await self.coordinator.aclose(grace=1)
        assert report.remaining == 0
        await self.coordinator.aclose()
        assert_adds_up(self.coordinator)
        assert_quiet(self.coordinator, *([] if self.limiter is None else [self.limiter]))

    def check(self, end):
        for (number, _, failures, seconds), operation in self.operations:
            assert operation.has_ended
            if operation.status == "completed":
                assert self.attempts[number] == failures + 1
                assert seconds < 1
            elif operation.status == "failed":
                assert self.attempts[number] == 3
            else:
                assert operation.status == "cancelled"
        if self.maker in {"keyed", "fair", "result"}:
            for key in "abc":
                numbers = [number for number, own, *_ in self.started if own == key]
                assert numbers == sorted(numbers)
        if end == "drain":
            assert not self.coordinator.engine.schedule.leftovers().get("keys")


@given(
    maker=st.sampled_from(sorted(MAKERS)),
    limiter=st.sampled_from(sorted(LIMITERS)),
    overflow=st.sampled_from(["reject", "drop_oldest"]),
    steps=st.lists(STEPS, max_size=40),
    end=st.sampled_from(["drain", "cancel", "close"]),
)
def test_everything_is_counted_once_and_ends(maker, limiter, overflow, steps, end):
    async def main():
        world = World(maker, limiter, overflow)
        await world.play(steps, end)
        world.check(end)

    run(main())
