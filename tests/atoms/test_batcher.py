"""The batcher: when a batch begins, how large it is, and what becomes of its items."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import CoordinatorClosed, InvalidBody, InvalidOption, OperationCancelled
from ephemerals.atoms import GCRA, Batcher, ItemDiscarded, RetryPolicy
from ephemerals.testing import VirtualClock, assert_forgotten, assert_quiet, run


def now():
    return VirtualClock.current().monotonic() - 1000


class Bulk:
    """Take some seconds for a batch; note when which began; fail those with "bad" in them."""

    def __init__(self, seconds=0):
        self.seconds = seconds
        self.batches = []
        self.running = self.most = 0

    async def __call__(self, items):
        self.batches.append((now(), items))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1
        if "bad" in items:
            raise OSError("no")
        return [f"<{item}>" for item in items]


async def put(batcher, *items):
    return [await batcher.put(item) for item in items]


async def test_a_batch_begins_when_it_is_full_or_its_first_item_has_lingered():
    bulk = Bulk()
    async with Batcher(bulk, max_size=3, linger=50) as batcher:
        await put(batcher, 1, 2, 3)
        await asyncio.sleep(30)
        await put(batcher, 4)
        await asyncio.sleep(40)
        await put(batcher, 5)
        await asyncio.sleep(40)
    assert bulk.batches == [(0, [1, 2, 3]), (80, [4, 5])]
    assert_quiet(batcher)


async def test_each_item_gets_its_own_result():
    async with Batcher(Bulk(1), max_size=2, linger=1) as batcher:
        promises = await put(batcher, "a", "b", "c")
        assert await asyncio.gather(*promises) == ["<a>", "<b>", "<c>"]
        assert await promises[0] == "<a>"


async def test_a_function_without_results_is_fine():
    async def store(items):
        pass

    async with Batcher(store, max_size=1) as batcher:
        assert await (await batcher.put("a")) is None


async def test_draining_begins_what_is_there_at_once():
    """R14."""
    bulk = Bulk()
    batcher = Batcher(bulk, max_size=100, linger=60)
    await put(batcher, *range(7))
    report = await batcher.drain()
    assert bulk.batches == [(0, list(range(7)))]
    assert (report.completed, batcher.statistics().completed) == (1, 7)
    await batcher.aclose()
    assert_quiet(batcher)


async def test_cancelling_gives_back_what_never_began():
    """R14."""
    bulk = Bulk(10)
    batcher = Batcher(bulk, max_size=2, linger=60)
    promises = await put(batcher, *range(7))
    await asyncio.sleep(1)
    assert batcher.cancel() == [2, 3, 4, 5, 6]
    outcomes = await asyncio.gather(*promises, return_exceptions=True)
    assert [type(each) for each in outcomes] == [OperationCancelled] * 2 + [ItemDiscarded] * 5
    counts = batcher.statistics()
    assert (counts.accepted, counts.cancelled, counts.discarded, counts.waiting) == (7, 2, 5, 0)
    assert batcher.cancel() == []
    await batcher.aclose()
    assert bulk.batches == [(0, [0, 1])]
    assert_quiet(batcher)


async def test_leaving_with_an_exception_cancels():
    bulk = Bulk()
    with pytest.raises(ZeroDivisionError):
        async with Batcher(bulk, linger=60) as batcher:
            await put(batcher, 1, 2)
            raise ZeroDivisionError
    assert bulk.batches == []
    assert batcher.statistics().discarded == 2
    assert_quiet(batcher)


async def test_a_failing_batch_fails_its_own_items_and_no_others():
    async with Batcher(Bulk(), max_size=2) as batcher:
        promises = await put(batcher, "a", "bad", "c", "d")
        outcomes = await asyncio.gather(*promises, return_exceptions=True)
    assert [str(each) for each in outcomes] == ["no", "no", "<c>", "<d>"]
    assert outcomes[0] is not outcomes[1]
    assert (batcher.statistics().failed, batcher.statistics().completed) == (2, 2)


async def test_too_few_results_are_a_failure_of_the_batch():
    async def wrong(items):
        return [1]

    async with Batcher(wrong, max_size=2) as batcher:
        (promise, _) = await put(batcher, "a", "b")
        with pytest.raises(ValueError, match="gave 1 results for 2 items"):
            await promise


async def test_one_batch_runs_at_a_time_unless_asked_otherwise():
    for limit in (1, 3):
        bulk = Bulk(10)
        async with Batcher(bulk, max_size=1, max_concurrency=limit) as batcher:
            await put(batcher, *range(6))
        assert bulk.most == limit
        assert [items for _, items in bulk.batches] == [[number] for number in range(6)]


async def test_a_batch_that_must_wait_fills_up_meanwhile_and_never_beyond_its_size():
    bulk = Bulk(10)
    async with Batcher(bulk, max_size=4, linger=1) as batcher:
        for number in range(20):
            await batcher.put(number)
            await asyncio.sleep(1.1)
    assert bulk.batches[0] == (1, [0])
    assert [len(items) for _, items in bulk.batches] == [1, 4, 4, 4, 4, 3]
    assert [item for _, items in bulk.batches for item in items] == list(range(20))


async def test_with_too_much_waiting_put_waits_in_order():
    bulk = Bulk(10)
    async with Batcher(bulk, max_size=2, linger=1, max_waiting=3) as batcher:
        putting = asyncio.create_task(put(batcher, *range(12)))
        await asyncio.sleep(5)
        assert not putting.done()
        assert batcher.statistics().waiting == 3
        assert batcher.try_put(99) is None
        await putting
        assert now() > 30
    assert [item for _, items in bulk.batches for item in items] == list(range(12))
    assert_quiet(batcher)


async def test_who_gives_up_waiting_for_room_has_put_nothing():
    bulk = Bulk(10)
    async with Batcher(bulk, max_size=1, max_waiting=1) as batcher:
        await put(batcher, "a", "b")
        waiting = [asyncio.create_task(batcher.put(item)) for item in "cde"]
        await asyncio.sleep(5)
        waiting[0].cancel()
        await asyncio.sleep(5.5)  # b has begun, and d has its place
        assert [each.done() for each in waiting] == [True, True, False]
    assert [items for _, items in bulk.batches] == [["a"], ["b"], ["d"]]
    with pytest.raises(CoordinatorClosed):
        await waiting[2]


async def test_a_place_given_to_somebody_who_is_cancelled_at_that_moment_goes_to_the_next():
    """R26."""
    bulk = Bulk(10)
    async with Batcher(bulk, max_size=1, max_waiting=1) as batcher:
        await put(batcher, "a", "b")
        waiting = [asyncio.create_task(batcher.put(item)) for item in "cd"]
        await asyncio.sleep(5)
        batcher._leave(1)
        waiting[0].cancel()
        await asyncio.sleep(0.1)
        assert waiting[1].done()
        batcher._waiting += 1
    assert ["d"] in [items for _, items in bulk.batches]
    assert_quiet(batcher)


async def test_a_closed_batcher_takes_nothing():
    batcher = Batcher(Bulk())
    await batcher.aclose()
    for call in (batcher.try_put, lambda item: asyncio.ensure_future(batcher.put(item))):
        with pytest.raises(CoordinatorClosed):
            await call(1)


async def test_closing_cancels_when_the_grace_is_over():
    bulk = Bulk(100)
    batcher = Batcher(bulk, max_size=1)
    promises = await put(batcher, "a", "b")
    await batcher.aclose(grace=5)
    assert now() == 5
    outcomes = await asyncio.gather(*promises, return_exceptions=True)
    assert [type(each) for each in outcomes] == [OperationCancelled, ItemDiscarded]
    assert_quiet(batcher)


async def test_join_leaves_it_open():
    bulk = Bulk()
    async with Batcher(bulk, linger=60) as batcher:
        await put(batcher, 1)
        await batcher.join()
        await put(batcher, 2)
        batcher.flush()
        batcher.flush()
    assert bulk.batches == [(0, [1]), (0, [2])]


async def test_a_batch_is_retried_and_limited_like_any_item():
    calls = []

    async def flaky(items):
        calls.append((now(), list(items)))
        items.clear()  # it has its own list
        if len(calls) < 3:
            raise OSError

    policy = RetryPolicy(initial=1, jitter=False)
    async with Batcher(flaky, max_size=2, retry=policy, limiter=GCRA(0.5)) as batcher:
        await put(batcher, 1, 2)
    assert calls == [(0, [1, 2]), (2, [1, 2]), (4, [1, 2])]
    assert batcher.statistics().completed == 2
    assert_quiet(batcher)


@given(
    st.lists(st.floats(0, 3), min_size=1, max_size=60),
    st.integers(1, 5),
    st.floats(0, 2),
    st.floats(0, 5),
    st.integers(1, 8),
    st.integers(1, 3),
)
def test_whatever_comes_no_batch_is_too_large_and_none_waits_too_long(  # noqa: PLR0917 - hypothesis fills them
    gaps, size, linger, seconds, waiting, at_once
):
    bulk = Bulk(seconds)

    async def main():
        options = {"max_size": size, "linger": linger, "max_waiting": waiting, "max_concurrency": at_once}
        async with Batcher(bulk, **options) as batcher:
            came, promises = [], []
            for number, gap in enumerate(gaps):
                await asyncio.sleep(gap)
                promises.append(await batcher.put(number))
                came.append(now())
                counts = batcher.statistics()
                assert counts.waiting <= waiting
        assert await asyncio.gather(*promises) == [f"<{number}>" for number in range(len(gaps))]
        assert_quiet(batcher)
        return came

    came = run(main())
    assert [item for _, items in bulk.batches for item in items] == list(range(len(gaps)))
    assert all(1 <= len(items) <= size for _, items in bulk.batches)
    assert bulk.most <= at_once
    if not seconds:
        assert all(begun <= came[items[0]] + linger + 1e-6 for begun, items in bulk.batches)


@pytest.mark.parametrize("end", ["success", "failure", "cancel", "discard"])
async def test_items_are_forgotten_while_their_promises_are_held(end):
    async def store(items):
        await asyncio.sleep(1)
        if end == "failure":
            raise OSError(items[0].secret)

    batcher = Batcher(store, linger=1)

    async def use(item):
        promise = await batcher.put(item)
        del item
        if end == "cancel":
            await asyncio.sleep(1.5)
        if end in {"cancel", "discard"}:
            batcher.cancel()
        await batcher.join() if end in {"success", "failure"} else await asyncio.sleep(1)
        return promise, batcher.coordinator.snapshot()

    await assert_forgotten(use)
    await batcher.aclose()
    assert_quiet(batcher)


def test_wrong_options_are_refused():
    for option, value in (("max_size", 0), ("linger", -1), ("max_waiting", 0), ("max_concurrency", 0)):
        with pytest.raises(InvalidOption, match=option):
            Batcher(Bulk(), **{option: value})
    with pytest.raises(InvalidBody):
        Batcher(print)
