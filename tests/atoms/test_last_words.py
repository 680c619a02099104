"""Last words: what operations leave behind is persisted, bounded, and within a budget at the end."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import FinalizationReason, InvalidOption, WorkCoordinator
from ephemerals.atoms import LastWords, RetryPolicy
from ephemerals.testing import VirtualClock, assert_forgotten, assert_quiet, run


def now():
    return VirtualClock.current().monotonic() - 1000


class Store:
    """Persist echoes, taking some seconds for each."""

    def __init__(self, seconds=0):
        self.seconds = seconds
        self.kept = []

    async def __call__(self, echo):
        await asyncio.sleep(self.seconds)
        self.kept.append(echo)


async def emitting(item, operation):
    for name in item:
        operation.emit(name, data=len(name))


async def work(item):
    if item == "bad":
        raise OSError


def names(echo):
    return [event.name for event in echo.signals]


async def test_what_leaves_the_window_is_persisted_for_whatever_reason_it_leaves():
    store = Store()
    async with LastWords(store) as words:
        options = {"on_finalized": words, "max_tracked_operations": 2, "max_operation_lifetime": 60}
        async with WorkCoordinator(work, max_concurrency=1, **options) as coordinator:
            operations = [await coordinator.enqueue(item) for item in ("a", "bad", "c", "d")]
            await coordinator.join()
            coordinator.evict(operations[2].id)
            await asyncio.sleep(100)
            await coordinator.enqueue("e")
    assert [each.reason for each in store.kept] == [
        FinalizationReason.SIZE,
        FinalizationReason.SIZE,
        FinalizationReason.EVICTED,
        FinalizationReason.AGE,
        FinalizationReason.SHUTDOWN,
    ]
    assert [each.id for each in store.kept[:4]] == [each.id for each in operations]
    assert [each.error_type for each in store.kept] == [None, "OSError", None, None, None]
    counts = words.statistics()
    assert (counts.heard, counts.persisted, counts.ignored, counts.dropped) == (5, 5, 0, 0)
    assert_quiet(words, coordinator)


async def test_an_echo_is_kept_once_a_signal_has_activated_it():
    """[echo] 115."""
    store = Store()
    async with (
        LastWords(store, activate="echo.capture", capture="echo.*") as words,
        WorkCoordinator(emitting, on_finalized=words) as coordinator,
    ):
        wanted = await coordinator.enqueue(["echo.early", "echo.capture", "noise", "echo.state"])
        await coordinator.enqueue(["echo.state"])
    (echo,) = store.kept
    assert (echo.id, names(echo)) == (wanted.id, ["echo.capture", "echo.state"])
    assert [event.data for event in echo.signals] == [12, 10]
    assert (words.statistics().heard, words.statistics().ignored) == (2, 1)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, [["a.1", "b.1", "a.2"], ["b.1"], []]),
        ({"capture": "a.*"}, [["a.1", "a.2"]]),
        ({"activate": "b.*"}, [["b.1", "a.2"], ["b.1"]]),
        ({"activate": "b.*", "capture": "a.*"}, [["b.1", "a.2"], ["b.1"]]),
        ({"only": lambda echo: len(echo.signals) < 2}, [["b.1"], []]),
    ],
)
async def test_what_is_kept_can_be_chosen(choice, expected):
    store = Store()
    async with (
        LastWords(store, **choice) as words,
        WorkCoordinator(emitting, on_finalized=words) as coordinator,
    ):
        await coordinator.enqueue_many([["a.1", "b.1", "a.2"], ["b.1"], []])
    assert [names(each) for each in store.kept] == expected
    assert words.statistics().ignored == 3 - len(expected)


async def test_a_slow_store_holds_up_no_work_and_what_has_no_room_is_counted():
    store = Store(10)
    async with LastWords(store, max_waiting=2, grace=None) as words:
        options = {"on_finalized": words, "max_tracked_operations": 0, "max_concurrency": 1}
        async with WorkCoordinator(work, **options) as coordinator:
            for number in range(10):
                await coordinator.run(str(number))
                await asyncio.sleep(0)
            assert now() == 0
        assert (words.statistics().waiting, words.statistics().dropped) == (3, 7)
    counts = words.statistics()
    assert (counts.persisted, counts.dropped, counts.lost) == (3, 7, 0)
    assert_quiet(words)


async def test_the_newest_may_push_out_the_oldest():
    store = Store(10)
    async with LastWords(store, max_waiting=2, grace=None, overflow="drop_oldest") as words:
        options = {"on_finalized": words, "max_tracked_operations": 0, "max_concurrency": 1}
        async with WorkCoordinator(work, **options) as coordinator:
            operations = [await coordinator.enqueue(str(number)) for number in range(10)]
    assert [each.id for each in store.kept][-2:] == [each.id for each in operations][-2:]
    counts = words.statistics()
    assert counts.persisted + counts.dropped == 10
    assert counts.lost == 0


async def test_closing_takes_no_longer_than_its_budget():
    store = Store(10)
    for end in ("leave", "error", "close"):
        before = now()
        words = LastWords(store, grace=25)
        coordinator = WorkCoordinator(work, on_finalized=words)
        await coordinator.enqueue_many("abcdef")
        await coordinator.aclose()
        if end == "leave":
            async with words:
                pass
        elif end == "error":
            with pytest.raises(ZeroDivisionError):
                async with words:
                    raise ZeroDivisionError
        else:
            await words.aclose(grace=5)
        assert now() - before == (5 if end == "close" else 25)
        counts = words.statistics()
        assert counts.persisted + counts.lost == 6
        assert counts.persisted == (0 if end == "close" else 2)
        assert_quiet(words)


async def test_what_comes_too_late_is_dropped_and_counted(caplog):
    store = Store()
    async with WorkCoordinator(work, on_finalized=(words := LastWords(store))) as coordinator:
        async with words:
            pass
        await coordinator.enqueue("a")
    assert (store.kept, words.statistics().dropped, coordinator.statistics().hook_errors) == ([], 1, 0)
    assert "CoordinatorClosed" in caplog.text


def test_without_a_loop_it_is_dropped_too():
    words = LastWords(Store())

    async def main():
        async with WorkCoordinator(work) as coordinator:
            return (await coordinator.enqueue("a")).snapshot()

    words(run(main()), FinalizationReason.AGE)
    assert words.statistics().dropped == 1


async def test_persisting_is_retried_and_a_failure_is_counted():
    calls = []

    async def flaky(echo):
        calls.append(echo.id)
        if len(calls) != 2:
            raise OSError

    policy = RetryPolicy(attempts=2, initial=1, jitter=False)
    async with (
        LastWords(flaky, retry=policy, grace=None) as words,
        WorkCoordinator(work, on_finalized=words, max_concurrency=1) as coordinator,
    ):
        await coordinator.enqueue_many("ab")
    assert (words.statistics().persisted, words.statistics().failed) == (1, 1)
    await words.join()
    assert_quiet(words)


async def test_a_predicate_that_raises_is_a_hook_that_raises():
    async with (
        LastWords(Store(), only=lambda echo: 1 / 0) as words,
        WorkCoordinator(work, on_finalized=words) as coordinator,
    ):
        await coordinator.enqueue("a")
    assert coordinator.statistics().hook_errors == 1


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(0, 5)), max_size=30),
    st.floats(0, 2),
    st.integers(1, 4),
    st.integers(0, 3),
    st.floats(0, 10),
)
def test_whatever_happens_everything_heard_of_is_accounted_for(arrivals, seconds, waiting, tracked, grace):
    store = Store(seconds)

    async def main():
        words = LastWords(store, max_waiting=waiting, grace=grace)
        async with WorkCoordinator(work, on_finalized=words, max_tracked_operations=tracked) as coordinator:
            for gap, count in arrivals:
                await asyncio.sleep(gap)
                await coordinator.enqueue_many(["x"] * count)
                assert words.statistics().waiting <= waiting + 1
        await words.aclose()
        assert_quiet(words, coordinator)
        return words.statistics()

    counts = run(main())
    assert counts.heard == sum(count for _, count in arrivals)
    assert counts.heard == counts.persisted + counts.dropped + counts.lost + counts.failed
    assert counts.persisted == len(store.kept)
    assert counts.waiting == 0


@pytest.mark.parametrize("end", ["persisted", "failed"])
async def test_items_and_what_was_persisted_are_forgotten(end):
    async def save(echo):
        await asyncio.sleep(1)
        if end == "failed":
            raise OSError(echo.signals[0].data)

    async def noisy(item, operation):
        operation.emit("word", data=item)

    async with LastWords(save) as words:

        async def use(item):
            async with WorkCoordinator(noisy, on_finalized=words) as coordinator:
                await coordinator.enqueue(item)
                del item
            coordinator.signals.sink.clear()
            await words.join()
            return words

        await assert_forgotten(use)


def test_wrong_options_are_refused():
    for option, value in (("max_waiting", 0), ("grace", -1), ("only", 3), ("max_concurrency", 0)):
        with pytest.raises(InvalidOption, match=option):
            LastWords(Store(), **{option: value})
