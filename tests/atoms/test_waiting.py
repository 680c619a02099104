"""A line of waiters loses nobody, whoever is cancelled when."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from ephemerals.atoms.waiting import WaitingLine
from ephemerals.testing import run

STEPS = st.lists(
    st.one_of(
        st.just("come"),
        st.just("give"),
        st.just("turn"),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
    ),
    max_size=40,
)


class Permits:
    """Hand a number of permits on to those who wait, as every user of a line does."""

    def __init__(self):
        self.free = 0
        self.line = WaitingLine(lambda _: self.give(), lambda: None)

    def give(self):
        self.free += 1
        while self.free and self.line:
            self.free -= 1
            self.line.wake_first()

    async def take(self, number, served):
        if self.free and not self.line:
            self.free -= 1
        else:
            await self.line.wait(None)
        served.append(number)


@given(STEPS)
def test_every_permit_goes_to_the_first_who_still_waits(steps):
    """R24, R25, R26."""

    async def main():
        permits, served, tasks, given_out = Permits(), [], [], 0
        for step in steps:
            if step == "come":
                tasks.append(asyncio.create_task(permits.take(len(tasks), served)))
            elif step == "give":
                permits.give()
                given_out += 1
            elif step == "turn":
                await asyncio.sleep(0)
            elif step[1] < len(tasks):
                tasks[step[1]].cancel()
        await asyncio.sleep(1)
        alive = [number for number, task in enumerate(tasks) if not task.cancelled()]
        assert permits.free == given_out - len(served)
        # Who need not wait may run before one that was woken a moment earlier.
        assert sorted(served) == alive[: len(served)]
        assert len(served) == min(given_out, len(alive))
        assert len(permits.line) == len(alive) - len(served)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(permits.line) == 0

    run(main())


async def test_ten_thousand_cancelled_in_one_tick_are_passed_over():
    permits, served = Permits(), []
    tasks = [asyncio.create_task(permits.take(number, served)) for number in range(10_001)]
    await asyncio.sleep(0)
    for task in tasks[:-1]:
        task.cancel()
    permits.give()
    await tasks[-1]
    assert served == [10_000]
