"""Bad input: every wrong value is refused where it is given, and nothing is lost or left because of it.

Wrong options are in test_options.py, wrong lanes in test_priority.py, wrong metadata in test_operation.py.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
from unittest.mock import AsyncMock

import pytest
from tests.coordinators import every_coordinator

from ephemerals import (
    InvalidBody,
    KeyedWorkCoordinator,
    Operation,
    PriorityWorkCoordinator,
    ResultCoordinator,
    WorkCoordinator,
)


async def of_item(item):
    return ("item", item)


async def of_both(item, operation):
    return ("both", item, operation)


class Service:
    async def method(self, item):
        return ("method", item)

    async def method_of_both(self, item, operation):
        return ("both", item, operation)

    @staticmethod
    async def static(item):
        return ("static", item)

    @classmethod
    async def of_class(cls, item):
        return ("class", item)

    def __init__(self, item=None):
        self.item = item


class AsyncCallable:
    async def __call__(self, item):
        return ("callable", item)


class AsyncCallableOfBoth:
    async def __call__(self, item, operation):
        return ("both", item, operation)


class GeneratorCallable:
    def __call__(self, item):
        yield item


class NeedsNothing:
    def __call__(self):
        pass


def generator(item):
    yield item


async def async_generator(item):
    yield item


class WithGenerators:
    def plain(self, item):
        yield item

    async def asynchronous(self, item):
        yield item


@functools.wraps(of_item)
async def wrapped(*args, **keywords):
    return await of_item(*args, **keywords)


async def with_default(item, size=3):
    return ("default", item, size)


async def with_optional_operation(item, operation=None):
    return ("both", item, operation)


async def with_annotated(item, op: Operation[int] = None):
    return ("both", item, op)


async def with_plainly_annotated(item, op: Operation = None):
    return ("both", item, op)


async def with_text_annotation(item, op: Operation[int] | None = None):
    return ("default", item, op)


async def with_rest(*items):
    return ("rest", *items)


async def with_keywords(item, *, size=3, **rest):
    return ("keywords", item, size)


async def bound_first(bound, item):
    return ("partial", bound, item)


async def bound_keyword(item, *, needed):
    return ("partial", item, needed)


GOOD = {
    "function": (of_item, ("item", 1)),
    "function of both": (of_both, "both"),
    "method": (Service().method, ("method", 1)),
    "method of both": (Service().method_of_both, "both"),
    "static method": (Service.static, ("static", 1)),
    "class method": (Service.of_class, ("class", 1)),
    "callable object": (AsyncCallable(), ("callable", 1)),
    "callable object of both": (AsyncCallableOfBoth(), "both"),
    "wrapped": (wrapped, ("item", 1)),
    "default": (with_default, ("default", 1, 3)),
    "optional operation": (with_optional_operation, "both"),
    "annotated operation": (with_annotated, "both"),
    "rest": (with_rest, ("rest", 1)),
    "keywords": (with_keywords, ("keywords", 1, 3)),
    "partial": (functools.partial(bound_first, "bound"), ("partial", "bound", 1)),
    "partial of keyword": (functools.partial(bound_keyword, needed=5), ("partial", 1, 5)),
    "partial of partial": (functools.partial(functools.partial(bound_keyword), needed=5), ("partial", 1, 5)),
    "partial of callable object": (functools.partial(AsyncCallable()), ("callable", 1)),
    "lambda in a thread": (lambda item: item + 1, 2),
    "builtin": (str, "1"),
    "builtin without signature": (max, None),
    "builtin method": ([].append, None),
    "mock": (AsyncMock(return_value=7), 7),
}


@pytest.mark.parametrize(("body", "expected"), GOOD.values(), ids=GOOD.keys())
async def test_what_can_be_called_with_an_item_is_a_body(body, expected):
    async with WorkCoordinator(body) as coordinator:
        operation = await coordinator.enqueue([1, 0] if body is max else 1)
        result = await operation
        if expected == "both":
            assert result == ("both", 1, operation)
        elif body is max:
            assert result == 1
        else:
            assert result == expected


async def test_a_class_is_called_in_a_thread_like_any_plain_function():
    async with WorkCoordinator(Service) as coordinator:
        assert (await coordinator.run(7)).item == 7
    async with WorkCoordinator(lambda item: threading.current_thread() is threading.main_thread()) as coordinator:
        assert await coordinator.run(7) is False


async def test_a_class_whose_instances_are_awaited_is_still_a_class():
    class Body:
        def __init__(self, item):
            self.item = item

        async def __call__(self, item):
            return item

    async with WorkCoordinator(Body) as coordinator:
        assert (await coordinator.run(7)).item == 7


BAD = {
    "no function": (5, "must be a function, not int"),
    "none": (None, "must be a function, not NoneType"),
    "text": ("body", "must be a function, not str"),
    "three parameters": (lambda first, second, third: None, "takes 3 parameters"),
    "no parameter": (lambda: None, "takes no parameters"),
    "callable without parameter": (NeedsNothing(), "takes no parameters"),
    "needed keyword": (lambda item, *, size: None, "needs the keyword 'size'"),
    "only keywords": (lambda **keywords: None, "takes no parameters"),
    "generator": (generator, "is a generator, which would never run"),
    "async generator": (async_generator, "is a generator"),
    "generator method": (WithGenerators().plain, "is a generator"),
    "async generator method": (WithGenerators().asynchronous, "is a generator"),
    "generator object": (GeneratorCallable(), "is a generator"),
    "partial of a generator": (functools.partial(generator), "is a generator"),
}


@pytest.mark.parametrize(("body", "message"), BAD.values(), ids=BAD.keys())
@every_coordinator
def test_what_cannot_be_run_is_refused_with_what_was_expected(make, body, message):
    with pytest.raises(TypeError, match=message) as caught:
        make(body)
    assert isinstance(caught.value, InvalidBody)
    assert "body(item)" in str(caught.value)
    assert "body(item, operation)" in str(caught.value)


@every_coordinator
def test_a_coroutine_object_is_closed_and_refused_with_the_corrected_call(make):  # report R4
    with pytest.raises(InvalidBody, match=r"coroutine object was given \(of_item\).*Coordinator\((key, )?translate\)"):
        make(of_item(1))
    gc.collect()  # a coroutine left open would warn, and warnings are errors


def test_a_refused_body_leaves_no_thread_and_nothing_to_close():
    before = threading.active_count()
    for body in (5, generator):
        with pytest.raises(TypeError):
            WorkCoordinator(body)
    gc.collect()
    assert threading.active_count() == before


@pytest.mark.parametrize("make", [WorkCoordinator, ResultCoordinator, PriorityWorkCoordinator])
def test_a_key_belongs_to_those_that_take_one(make):
    if make is WorkCoordinator:
        with pytest.raises(TypeError, match="no option named 'key'"):
            make(of_item, key=str)
    else:
        make(of_item, key=str)


def test_a_keyed_coordinator_needs_its_key_first():
    with pytest.raises(TypeError):
        KeyedWorkCoordinator(of_item)
    with pytest.raises(TypeError, match="coroutine|function"):
        KeyedWorkCoordinator(5, of_item)


async def test_refusals_of_every_kind_count_nothing_and_break_nothing():
    async with KeyedWorkCoordinator(lambda item: item["key"], of_item, max_pending=1) as coordinator:
        coordinator.pause()
        for wrong in (None, {}, {"key": []}):
            with pytest.raises((TypeError, KeyError)):
                await coordinator.enqueue(wrong)
            with pytest.raises((TypeError, KeyError)):
                coordinator.try_enqueue(wrong)
        with pytest.raises(ValueError, match="metadata="):
            await coordinator.enqueue({"key": 1}, metadata={"x": object()})
        assert coordinator.total_enqueued == 0
        assert coordinator.engine.leftovers()["keys"] == 0
        await coordinator.enqueue({"key": 1})
        coordinator.resume()
        await coordinator.join()
        assert coordinator.total_completed == 1


@pytest.mark.parametrize("item", [None, 0, "", [], object(), ..., NotImplemented, Exception("item")])
async def test_any_object_is_an_item(item):
    async with WorkCoordinator(of_item) as coordinator:
        assert await coordinator.run(item) == ("item", item)


async def test_awaiting_twice_at_once_in_one_task_is_fine():
    async with WorkCoordinator(of_item) as coordinator:
        operation = await coordinator.enqueue(1)
        results = await asyncio.gather(operation, operation)
        assert results == [("item", 1)] * 2
