"""Key selectors and hooks: what would never be called, or never run, is refused where it is given."""

from __future__ import annotations

import asyncio
import functools
import gc

import pytest

from ephemerals import (
    Background,
    CoordinatorRegistry,
    EphemeralOptions,
    InvalidOption,
    InvalidOptionType,
    KeyedWorkCoordinator,
    PriorityWorkCoordinator,
    ResultCoordinator,
    WorkCoordinator,
    for_each,
    map_each,
)
from ephemerals.atoms import Cache, KeyedSequential, RetryPolicy
from ephemerals.signals import SignalConstraints, SignalSink


async def handle(item):
    return item


async def asynchronous(*_arguments):
    pass


def generator(*_arguments):
    yield 1


async def async_generator(*_arguments):
    yield 1


class AsyncCallable:
    async def __call__(self, *_arguments):
        pass


KINDS = {
    "async": asynchronous,
    "async partial": functools.partial(asynchronous, 1),
    "async callable": AsyncCallable(),
    "generator": generator,
    "async generator": async_generator,
}
WRONG_KEYS = {**KINDS, "no parameter": lambda: 1, "two parameters": lambda item, other: 1, "keyword": lambda *, item: 1}
TAKE_KEYS = {
    "keyed": lambda key: KeyedWorkCoordinator(key, handle),
    "result": lambda key: ResultCoordinator(handle, key=key),
    "priority": lambda key: PriorityWorkCoordinator(handle, key=key),
    "sequential": lambda key: KeyedSequential(key, handle),
    "map_each": lambda key: map_each([], handle, key=key),
    "registry": lambda key: CoordinatorRegistry().register_keyed("name", key, handle),
    "registry result": lambda key: CoordinatorRegistry().register_result("name", handle, key=key),
    "registry priority": lambda key: CoordinatorRegistry().register_priority("name", handle, key=key),
}
every_taker = pytest.mark.parametrize("make", TAKE_KEYS.values(), ids=TAKE_KEYS.keys())


@every_taker
@pytest.mark.parametrize("key", WRONG_KEYS.values(), ids=WRONG_KEYS.keys())
def test_a_key_selector_that_cannot_be_one_is_refused(make, key):
    with pytest.raises(InvalidOptionType, match="key=.* a plain function from an item to its key"):
        make(key)


@every_taker
@pytest.mark.parametrize(
    "key", [str, len, id, dict.keys, "user.id", lambda item, size=3: 1, lambda *items: 1, functools.partial(max, 1)]
)
def test_what_takes_an_item_is_a_key_selector(make, key):
    make(key)


async def test_a_wrong_key_of_for_each_is_refused_too():
    with pytest.raises(InvalidOptionType, match="key="):
        await for_each([1], handle, key=asynchronous)


def test_swapped_arguments_are_told_of_the_order():
    with pytest.raises(InvalidOptionType, match="the key comes first, then the body"):
        KeyedWorkCoordinator(handle, lambda command: command.user_id)


def test_a_coroutine_as_a_key_is_closed_and_refused():
    with pytest.raises(TypeError, match="coroutine object"):
        KeyedWorkCoordinator(handle(1), handle)
    gc.collect()  # one left open would warn, and warnings are errors


async def test_a_key_that_is_to_be_awaited_is_refused_at_enqueue():
    for key in (lambda item: handle((item, item)), lambda item: asyncio.get_running_loop().create_future()):
        async with KeyedWorkCoordinator(key, handle) as coordinator:
            with pytest.raises(InvalidOptionType, match="key=.*nothing that is still to be awaited"):
                await coordinator.enqueue(1)
            assert coordinator.total_enqueued == 0
    gc.collect()


@pytest.mark.parametrize("key", [asynchronous, generator])
def test_the_key_of_a_task_is_a_plain_function_too(key):
    with pytest.raises(InvalidOptionType, match="key="):
        Background().task(key=key)
    Background().task(key=lambda user, text: user)(lambda user, text: None)


PLAIN_HOOKS = {
    "on_finalized": (2, lambda hook: EphemeralOptions(on_finalized=hook)),
    "on_sample": (1, lambda hook: WorkCoordinator(handle, on_sample=hook)),
    "on_handler_error": (3, lambda hook: SignalSink(on_handler_error=hook)),
    "on_blocked": (2, lambda hook: SignalConstraints(on_blocked=hook)),
    "on_change": (1, lambda hook: SignalSink().watch("*", hook)),
    "on_evict": (3, lambda hook: Cache(ttl=None, max_age=None, max_size=5, on_evict=hook)),
    "retry_on": (1, lambda hook: RetryPolicy(retry_on=hook)),
    "random": (0, lambda hook: RetryPolicy(random=hook)),
}
EITHER_HOOKS = {
    "on_signal": (1, lambda hook: EphemeralOptions(on_signal=hook)),
    "on_signal_retracted": (1, lambda hook: EphemeralOptions(on_signal_retracted=hook)),
    "handler": (1, lambda hook: SignalSink().subscribe("*", hook)),
}
HOOKS = PLAIN_HOOKS | EITHER_HOOKS
every_hook = pytest.mark.parametrize("name", HOOKS)


@pytest.mark.parametrize("name", PLAIN_HOOKS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_that_nobody_would_run_is_refused(name, kind):
    with pytest.raises(InvalidOptionType, match=f"{name}=.*plain function"):
        PLAIN_HOOKS[name][1](KINDS[kind])


@pytest.mark.parametrize("name", EITHER_HOOKS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_that_may_be_async_may_be_no_generator(name, kind):
    if "generator" not in kind:
        EITHER_HOOKS[name][1](KINDS[kind])
        return
    with pytest.raises(InvalidOptionType, match=f"{name}=.*plain or async"):
        EITHER_HOOKS[name][1](KINDS[kind])


@every_hook
def test_a_hook_that_cannot_take_what_it_is_given_is_refused(name):
    count, give = HOOKS[name]
    names = [f"given{number}" for number in range(count + 1)]
    too_many = eval(f"lambda {', '.join(names)}: None")
    with pytest.raises(InvalidOptionType, match=rf"{name}\("):
        give(too_many)
    if count:
        with pytest.raises(InvalidOptionType, match=rf"{name}\("):
            give(lambda: None)


@every_hook
def test_a_hook_that_takes_it_is_taken(name):
    count, give = HOOKS[name]
    give(eval(f"lambda {', '.join(f'given{number}' for number in range(count))}: None"))
    give(lambda *given: None)


@every_hook
@pytest.mark.parametrize("given", [5, "name"])
def test_what_is_no_function_is_no_hook(name, given):
    with pytest.raises(InvalidOption, match=name):
        HOOKS[name][1](given)


def test_a_coroutine_as_a_hook_is_closed_and_refused():
    with pytest.raises(InvalidOptionType, match="on_sample"):
        EphemeralOptions(on_sample=asynchronous())
    gc.collect()
