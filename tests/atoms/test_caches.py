"""Caches: one load for many, what expires when, who has to go, and what is forgotten."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from itertools import accumulate

import pytest
from cachetools import LRUCache
from hypothesis import given
from hypothesis import strategies as st

from ephemerals import InvalidBody, InvalidOption
from ephemerals.atoms import EphemeralLruCache, LoadCancelled, LoadCycle, SlidingCache, sliding_cache
from ephemerals.atoms.eviction import S3Fifo
from ephemerals.testing import Payload, VirtualClock, assert_forgotten, assert_quiet, run


class Loader:
    """Load a key in a second: a new value each time, or an error."""

    def __init__(self, error=None, seconds=1):
        self.error = error
        self.seconds = seconds
        self.calls = []
        self.cancelled = 0

    async def __call__(self, key):
        self.calls.append(key)
        number = len(self.calls)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return f"{key}{number}"


async def settled(*tasks):
    return await asyncio.gather(*tasks, return_exceptions=True)


# One load for many.


async def test_a_hundred_who_ask_for_a_cold_key_cost_one_load():
    loader = Loader()
    async with SlidingCache(loader) as cache:
        assert await asyncio.gather(*(cache.get("k") for _ in range(100))) == ["k1"] * 100
        assert loader.calls == ["k"]
        counts = cache.statistics()
        assert (counts.misses, counts.joined, counts.loads, counts.hits) == (100, 99, 1, 0)
    assert_quiet(cache)


async def test_the_first_who_asks_may_be_cancelled_without_harm_to_the_others():
    """R31 (a)."""
    loader = Loader()
    async with SlidingCache(loader) as cache:
        first, second = asyncio.create_task(cache.get("k")), asyncio.create_task(cache.get("k"))
        await asyncio.sleep(0.5)
        first.cancel()
        assert await second == "k1"
        assert first.cancelled()
        assert len(loader.calls) == 1


async def test_when_nobody_waits_any_more_the_load_is_cancelled():
    """R31 (b)."""
    loader = Loader()
    async with SlidingCache(loader) as cache:
        tasks = [asyncio.create_task(cache.get("k")) for _ in range(3)]
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        await settled(*tasks)
        await asyncio.sleep(0)
        assert (loader.cancelled, cache.statistics().loading) == (1, 0)
        assert "k" not in cache
        assert await cache.get("k") == "k2"


async def test_who_asks_just_after_everybody_has_given_up_gets_a_load_of_its_own():
    loader = Loader()
    async with SlidingCache(loader) as cache:
        first = asyncio.create_task(cache.get("k"))
        await asyncio.sleep(0.5)
        first.cancel()
        await settled(first)
        assert await cache.get("k") == "k2"
        assert loader.cancelled == 1


async def test_a_failing_load_is_not_kept_and_everybody_gets_an_error_of_its_own():
    """R77."""
    loader = Loader(OSError("no"))
    async with SlidingCache(loader) as cache:
        errors = await settled(*(cache.get("k") for _ in range(100)))
        assert {type(error) for error in errors} == {OSError}
        assert {str(error) for error in errors} == {"no"}
        assert len({id(error) for error in errors}) == 100
        assert loader.error not in errors
        loader.error = None
        assert await cache.get("k") == "k2"
        assert cache.statistics().failed_loads == 1


async def test_failures_are_kept_for_a_short_time_if_asked_for():
    loader = Loader(OSError("no"))
    async with SlidingCache(loader, error_ttl=5) as cache:
        for _ in range(2):
            with pytest.raises(OSError, match="no"):
                await cache.get("k")
        assert len(loader.calls) == 1
        assert "k" not in cache
        assert cache.try_get("k") is None
        loader.error = None
        await asyncio.sleep(4.9)
        with pytest.raises(OSError, match="no"):
            await cache.get("k")
        await asyncio.sleep(0.2)  # asking has not prolonged it
        assert await cache.get("k") == "k2"


async def test_a_load_that_somebody_else_cancels_is_no_cancellation_of_those_who_wait():
    async def load(key):
        raise asyncio.CancelledError

    async with SlidingCache(load) as cache:
        with pytest.raises(LoadCancelled):
            await cache.get("k")


async def test_a_write_during_a_load_wins():
    loader = Loader()
    async with SlidingCache(loader) as cache:
        waiting = asyncio.create_task(cache.get("k"))
        await asyncio.sleep(0.5)
        cache.set("k", "written")
        assert await cache.get("k") == "written"
        assert await waiting == "written"
        assert cache.peek("k") == "written"


async def test_what_is_invalidated_during_its_load_is_not_stored_and_is_loaded_anew():
    loader = Loader()
    async with SlidingCache(loader) as cache:
        first = asyncio.create_task(cache.get("k"))
        await asyncio.sleep(0.5)
        assert not cache.invalidate("k")
        second = asyncio.create_task(cache.get("k"))
        assert await first == "k1"
        assert "k" not in cache
        assert await second == "k2"
        assert cache.peek("k") == "k2"
        third = asyncio.create_task(cache.get("other"))
        await asyncio.sleep(0.5)
        cache.clear()
        await third
        assert len(cache) == 0


async def test_a_loader_that_asks_for_its_own_key_gets_an_error_instead_of_waiting_for_ever():
    """R77."""

    async def load(key):
        return await cache.get(key)

    async with SlidingCache(load) as cache:
        with pytest.raises(LoadCycle, match="never end"):
            await cache.get("k")


async def test_loaders_that_ask_for_each_others_keys_get_an_error():
    async def load(key):
        await asyncio.sleep(1)
        return await cache.get({"a": "b", "b": "c", "c": "a"}[key])

    async with SlidingCache(load) as cache:
        outcomes = await settled(*(cache.get(key) for key in "abc"))
        assert {type(each) for each in outcomes} == {LoadCycle}


async def test_a_loader_may_ask_for_other_keys():
    async def load(number):
        if number < 2:
            return number
        low, high = await asyncio.gather(cache.get(number - 1), cache.get(number - 2))
        return low + high

    async with SlidingCache(load) as cache:
        assert await cache.get(30) == 832040
        assert cache.statistics().loads == 31


async def test_closing_cancels_loads_and_gives_up_values():
    loader, gone = Loader(), []
    cache = SlidingCache(loader, on_evict=lambda *what: gone.append(what))
    await cache.get("a")
    waiting = asyncio.create_task(cache.get("b"))
    await asyncio.sleep(0.5)
    await cache.aclose()
    with pytest.raises(LoadCancelled):
        await waiting
    assert gone == [("a", "a1", "closed")]
    assert_quiet(cache)
    await cache.aclose()


def test_a_cache_works_on_one_loop_after_another():
    loader = Loader(seconds=100)
    cache = SlidingCache(loader)

    async def leave_a_load_behind():
        task = asyncio.create_task(cache.get("k"))
        await asyncio.sleep(1)
        return task

    run(leave_a_load_behind())
    loader.seconds = 0
    assert run(cache.get("k")) == "k2"


# What expires when.


async def test_asking_prolongs_a_value_until_its_greatest_age():
    loader = Loader(seconds=0)
    async with SlidingCache(loader, ttl=60, max_age=3600) as cache:
        values = set()
        for _ in range(359):
            values.add(await cache.get("k"))
            await asyncio.sleep(10)
        assert values == {"k1"}
        await asyncio.sleep(10)
        assert await cache.get("k") == "k2"
        await asyncio.sleep(60)
        assert cache.try_get("k") is None


async def test_what_has_expired_is_never_a_hit_however_it_is_asked_for(ephemeral_clock):
    loader = Loader(seconds=0)
    async with SlidingCache(loader, ttl=60) as cache:
        for ask in (cache.try_get, cache.peek, lambda key: key in cache or None, lambda _: len(cache) or None):
            cache.set("k", "v")
            ephemeral_clock.advance(60)  # the timer has not run
            assert ask("k") is None
        cache.set("k", "v")
        ephemeral_clock.advance(60)
        assert await cache.get("k") == "k1"


async def test_age_counts_from_the_end_of_the_load():
    async with SlidingCache(Loader(seconds=100), ttl=60) as cache:
        await cache.get("k")
        assert cache.try_get("k") == "k1"


async def test_one_timer_removes_what_has_expired_on_time_and_none_is_left():
    gone = []
    async with SlidingCache(Loader(seconds=0), ttl=60, on_evict=lambda *what: gone.append(what)) as cache:
        for number in range(1000):
            cache.set(number, number)
        loop = asyncio.get_running_loop()
        assert len([timer for timer in loop._scheduled if not timer.cancelled()]) == 1
        await asyncio.sleep(30)
        cache.try_get(7)
        await asyncio.sleep(30)
        assert len(gone) == 999
        await asyncio.sleep(30)
        assert gone[-1] == (7, 7, "expired")
        assert cache.leftovers() == {"loads": 0, "timers": 0, "values": 0}


async def test_a_value_may_have_a_time_of_its_own():
    async with EphemeralLruCache(ttl=10) as cache:
        cache.set("long", 1, ttl=100)
        cache.set("short", 2, ttl=1)
        await asyncio.sleep(1)
        assert (cache.get("long"), cache.get("short")) == (1, None)
        await asyncio.sleep(99)
        assert cache.get("long") == 1


async def test_hot_values_live_longer():
    async with EphemeralLruCache(ttl=80, hot_ttl=500, hot_after=3) as cache:
        cache.set("hot", 1)
        cache.set("cold", 2)
        for _ in range(3):
            cache.get("hot")
        cache.get("cold")
        assert cache.statistics().hot == 1
        await asyncio.sleep(499)
        assert (cache.get("hot"), cache.get("cold")) == (1, None)


async def test_being_hot_never_shortens_a_life():
    async with EphemeralLruCache(ttl=100, hot_ttl=10, hot_after=1) as cache:
        cache.set("k", 1)
        cache.get("k")
        await asyncio.sleep(99)
        assert cache.get("k") == 1


def test_without_a_loop_values_expire_all_the_same():
    clock = VirtualClock()
    with clock.installed():
        cache = EphemeralLruCache(ttl=10)
        cache.set("a", 1)
        clock.advance(10)
        assert cache.get("a") is None
        cache.set("b", 1)
        clock.advance(10)
        cache.set("c", 1)
        assert len(cache._entries) == 1


# Who has to go.


async def test_there_are_never_more_than_the_size():
    gone = []
    async with EphemeralLruCache(max_size=2, on_evict=lambda *what: gone.append(what)) as cache:
        cache.set("asked for", 1)
        cache.get("asked for")
        cache.set("b", 2)
        cache.set("c", 3)
        assert gone == [("b", 2, "size")]
        assert cache.get("asked for") == 1
        assert cache.statistics().evicted == 1
        cache.set("c", 4)
        assert gone[1:] == [("c", 3, "replaced")]
        cache.invalidate("c")
        assert gone[2:] == [("c", 4, "invalidated")]


@given(
    st.integers(1, 20), st.lists(st.tuples(st.sampled_from(["set", "get", "drop"]), st.integers(0, 30)), max_size=200)
)
def test_whatever_happens_it_holds_at_most_its_size_and_what_it_holds_is_right(size, steps):
    cache = EphemeralLruCache(max_size=size)
    for what, key in steps:
        if what == "set":
            cache.set(key, key)
            assert key in cache
        elif what == "get":
            assert cache.get(key) in {key, None}
        else:
            cache.invalidate(key)
            assert key not in cache
        assert len(cache) == len(cache._order) <= size
        assert len(cache._order._ghosts) <= size + 1


def zipf_trace(keys, length, seed=1):
    """Return a trace of a Zipf distribution, with a scan over keys that come once now and then."""
    chance = random.Random(seed)
    weights = list(accumulate(1 / rank**0.9 for rank in range(1, keys + 1)))
    trace, scanned = [], 0
    while len(trace) < length:
        trace += chance.choices(range(keys), cum_weights=weights, k=2000)
        trace += range(10**6 + scanned, 10**6 + scanned + 500)
        scanned += 500
    return trace


@pytest.mark.parametrize("size", [50, 200, 1000])
def test_with_scans_the_hit_rate_is_not_below_that_of_an_lru_cache(size):
    trace = zipf_trace(keys=5000, length=60_000)
    ours, theirs, hits = EphemeralLruCache(max_size=size), LRUCache(size), 0
    for key in trace:
        if ours.get(key) is None:
            ours.set(key, True)
        if key in theirs:
            hits += 1
        theirs[key] = True
    assert ours.statistics().hits > hits


def test_the_order_remembers_hashes_of_those_that_have_gone_and_no_keys():
    key = Payload()
    reference = weakref.ref(key)
    order = S3Fifo(1)
    order.add(key)
    order.evict()
    del key
    gc.collect()
    assert reference() is None


# What is forgotten, and what is counted.


@pytest.mark.parametrize("way", ["invalidated", "expired", "evicted", "failed", "cancelled"])
async def test_nothing_is_kept_of_a_key_or_a_value_that_has_gone(way):
    async def load(key):
        if way == "cancelled":
            await asyncio.sleep(1000)
        value = OSError(key.secret)
        if way == "failed":
            raise value  # tied into a cycle with this frame
        return value

    cache = SlidingCache(load, ttl=10, max_size=5)

    async def use(key):
        asking = asyncio.create_task(cache.get(key))
        await asyncio.sleep(1)
        if way == "invalidated":
            cache.invalidate(key)
        elif way == "expired":
            await asyncio.sleep(10)
        elif way == "evicted":
            for number in range(10):
                cache.set(number, number)
        elif way == "cancelled":
            asking.cancel()
        await asyncio.wait((asking,))  # raising its error here would tie it to this frame, which holds the task
        assert asking.cancelled() or (asking.exception() is None) == (way != "failed")
        await asyncio.sleep(0.1)

    await assert_forgotten(use)
    await cache.aclose()
    assert_quiet(cache)


async def test_a_hook_that_fails_is_counted_and_stops_nothing():
    gone = []

    def hook(key, value, reason):
        gone.append(key)
        if key == "bad":
            raise ZeroDivisionError

    async with EphemeralLruCache(on_evict=hook) as cache:
        cache.set("bad", 1)
        cache.set("good", 2)
    assert gone == ["bad", "good"]
    assert cache.statistics().hook_errors == 1


async def test_looking_is_not_asking():
    async with EphemeralLruCache() as cache:
        cache.set("k", 1)
        assert cache.peek("k") == 1
        assert cache.peek("x", 9) == 9
        assert "k" in cache
        assert cache.statistics() == cache.statistics()
        assert (cache.statistics().hits, cache.statistics().misses) == (0, 0)


async def test_get_or_add_takes_the_loader_with_the_key():
    async with EphemeralLruCache() as cache:
        assert await asyncio.gather(*(cache.get_or_add("k", Loader()) for _ in range(3))) == ["k1"] * 3
        assert cache.get("k") == "k1"


async def test_a_decorated_function_is_computed_once_for_the_same_arguments():
    calls = []

    @sliding_cache(ttl=60, max_size=10)
    async def fetch(symbol, *, currency="EUR"):
        """Fetch."""
        calls.append((symbol, currency))
        return symbol + currency

    assert await asyncio.gather(fetch("A"), fetch("A"), fetch("A", currency="USD")) == ["AEUR", "AEUR", "AUSD"]
    assert calls == [("A", "EUR"), ("A", "USD")]
    assert (fetch.__name__, fetch.__doc__) == ("fetch", "Fetch.")
    assert fetch.invalidate("A")
    await fetch("A")
    assert len(calls) == 3
    assert fetch.statistics().size == 2
    await fetch.cache.aclose()


async def test_a_decorated_method_is_cached_for_each_object():
    class Shop:
        def __init__(self, name):
            self.name = name

        @sliding_cache()
        async def price(self, item):
            return self.name + item

    first, second = Shop("a"), Shop("b")
    assert [await first.price("x"), await second.price("x"), await first.price("x")] == ["ax", "bx", "ax"]
    assert Shop.price.statistics().loads == 2
    await Shop.price.cache.aclose()


def test_what_is_no_coroutine_function_is_refused():
    with pytest.raises(InvalidBody):
        SlidingCache(len)
    with pytest.raises(InvalidBody, match=r"functools\.lru_cache"):
        sliding_cache()(len)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ttl", 0),
        ("max_age", -1),
        ("max_size", 0),
        ("hot_after", 0),
        ("hot_ttl", "1"),
        ("error_ttl", 0),
        ("on_evict", 1),
    ],
)
def test_a_wrong_option_is_refused(option, value):
    with pytest.raises(InvalidOption, match=option):
        EphemeralLruCache(**{option: value})


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="no option 'size'"):
        EphemeralLruCache(size=3)
