"""Named coordinators: declared once, created on first use, closed together (D1-D6 of the reference)."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from ephemerals import (
    Background,
    CoordinatorClosed,
    CoordinatorRegistry,
    DuplicateName,
    EphemeralOptions,
    InvalidBody,
    InvalidOption,
    InvalidOptionType,
    KeyedWorkCoordinator,
    Lane,
    PriorityWorkCoordinator,
    RegistryClosed,
    ResultCoordinator,
    UnknownCoordinator,
    WorkCoordinator,
    WrongLoop,
)
from ephemerals.errors import CoordinatorError
from ephemerals.testing import VirtualClock, assert_quiet


async def ignore(item):
    pass


async def sleep(seconds):
    await asyncio.sleep(seconds)


class Made:
    """A factory that counts its calls and may fail at first."""

    def __init__(self, body=ignore, failures=0):
        self.body = body
        self.failures = failures
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionError("the translator is down")
        return self.body


def test_the_same_name_gives_the_same_coordinator_and_another_name_another():
    registry = CoordinatorRegistry()
    registry.register("fast", ignore)
    registry.register("accurate", ignore)
    assert registry["fast"] is registry["fast"] is registry.get("fast")
    assert registry["fast"] is not registry["accurate"]


def test_a_coordinator_is_created_when_it_is_first_asked_for():
    registry = CoordinatorRegistry()
    factory = Made()
    registry.register("fast", factory=factory)
    assert "fast" in registry
    assert factory.calls == 0
    assert registry.created() == {}
    first = registry["fast"]
    assert registry["fast"] is first
    assert factory.calls == 1
    assert registry.created() == {"fast": first}


def test_the_decorator_declares_and_leaves_the_function_as_it_is():
    registry = CoordinatorRegistry()

    @registry.coordinator("fast", max_concurrency=32)
    async def translate(item):
        pass

    assert asyncio.iscoroutinefunction(translate)
    assert registry["fast"].max_concurrency == 32


async def test_each_kind_has_a_form_and_a_decorator_of_its_own():
    registry = CoordinatorRegistry()
    lanes = [Lane("hot"), Lane("normal")]
    registry.register_keyed("keyed", "real", ignore, fair_scheduling=True)
    registry.register_result("result", ignore, key="real", results_ttl=5)
    registry.register_priority("priority", ignore, lanes=lanes, key="real")
    registry.keyed_coordinator("keyed too", "real")(ignore)
    registry.result_coordinator("result too", results_ttl=5)(ignore)
    registry.priority_coordinator("priority too", lanes=lanes)(ignore)
    async with registry:
        for end in ("", " too"):
            assert type(registry[f"keyed{end}"]) is KeyedWorkCoordinator
            assert type(registry[f"result{end}"]) is ResultCoordinator
            assert registry.get(f"priority{end}", PriorityWorkCoordinator).lanes == tuple(lanes)
        assert (await registry["keyed"].enqueue(7)).key == 7
        assert (await registry["result"].enqueue(7)).key == 7
        assert (await registry["priority"].enqueue(7)).key == 7


def test_the_name_in_logs_and_pages_is_the_registered_one_unless_another_is_given():
    registry = CoordinatorRegistry()
    registry.register("fast", ignore)
    registry.register("slow", ignore, name="snail")
    registry.register("shared", ignore, options=EphemeralOptions(max_concurrency=3))
    assert registry["fast"].name == "fast"
    assert registry["slow"].name == "snail"
    assert (registry["shared"].name, registry["shared"].max_concurrency) == ("shared", 3)


def test_an_unknown_name_lists_the_names_and_the_closest_one():  # D4
    registry = CoordinatorRegistry()
    registry.register("translator", ignore)
    registry.register("commands", ignore)
    with pytest.raises(UnknownCoordinator, match="did you mean 'translator'") as caught:
        registry["tranlator"]
    assert caught.value.known == ("commands", "translator")
    assert "tranlator" not in registry


def test_a_failed_factory_is_tried_again():  # D2
    registry = CoordinatorRegistry()
    factory = Made(failures=2)
    registry.register("fast", factory=factory)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            registry["fast"]
    assert registry["fast"] is registry["fast"]
    assert factory.calls == 3


def test_a_name_is_taken_once():  # D3
    registry = CoordinatorRegistry()
    registry.register("fast", ignore, max_concurrency=1)
    with pytest.raises(DuplicateName, match="'fast' exists already"):
        registry.register_keyed("fast", "real", ignore)
    assert registry.get("fast", WorkCoordinator).max_concurrency == 1


def test_the_kind_is_checked_without_creating_anything():  # D6
    registry = CoordinatorRegistry()
    registry.register("fast", ignore)
    with pytest.raises(InvalidOptionType, match="expected WorkCoordinator, which 'fast' is registered as"):
        registry.get("fast", KeyedWorkCoordinator)
    with pytest.raises(InvalidOptionType, match="expected WorkCoordinator, which 'fast' is registered as"):
        registry.get("fast", ResultCoordinator[str, int])
    assert registry.created() == {}
    assert type(registry.get("fast", WorkCoordinator[str, int])) is WorkCoordinator


@pytest.mark.parametrize(
    ("declare", "error", "message"),
    [
        (lambda registry: registry.register("a", ignore, max_concurrency=0), InvalidOption, "max_concurrency=0"),
        (lambda registry: registry.coordinator("a", max_concurrency=0), InvalidOption, "max_concurrency=0"),
        (lambda registry: registry.register("", ignore), InvalidOption, "name=''"),
        (lambda registry: registry.register(7, ignore), InvalidOptionType, "name=7"),
        (lambda registry: registry.register("a", lambda: None), InvalidBody, "takes no parameter"),
        (lambda registry: registry.register("a"), InvalidBody, "'a' needs a body, or a factory="),
        (lambda registry: registry.register("a", ignore, factory=Made()), InvalidBody, "one of them"),
        (lambda registry: registry.register("a", factory=ignore), InvalidBody, "must be a plain function"),
        (lambda registry: registry.register("a", factory=7), InvalidBody, "must be a plain function"),
        (lambda registry: registry.register("a", factory=ignore(1)), InvalidBody, "without calling it"),
        (lambda registry: registry.register_keyed("a", "not a name", ignore), InvalidOption, "key='not a name'"),
        (lambda registry: registry.register_result("a", ignore, key=7), InvalidOptionType, "key=7"),
        (lambda registry: registry.register_result("a", ignore, results_ttl=-1), InvalidOption, "results_ttl=-1"),
        (lambda registry: registry.register_priority("a", ignore, lanes=[]), InvalidOption, "lanes="),
        (lambda registry: registry.register_priority("a", ignore, key=7), InvalidOptionType, "key=7"),
        (lambda _: CoordinatorRegistry(grace=-1), InvalidOption, "grace=-1"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_declared(declare, error, message):
    registry = CoordinatorRegistry()
    with pytest.raises(error, match=message):
        declare(registry)
    assert registry.names() == ()


def test_a_factory_may_ask_for_another_coordinator_and_a_circle_is_named():
    registry = CoordinatorRegistry()
    registry.register("a", factory=lambda: registry["b"] and ignore)
    registry.register("b", factory=lambda: registry["c"] and ignore)
    registry.register("c", ignore)
    assert registry["a"] is registry["a"]
    assert list(registry.created()) == ["c", "b", "a"]
    registry.register("x", factory=lambda: registry["y"])
    registry.register("y", factory=lambda: registry["x"])
    with pytest.raises(CoordinatorError, match="'x' -> 'y' -> 'x'"):
        registry["x"]


def test_threads_that_ask_at_the_same_time_get_the_same_one():
    registry = CoordinatorRegistry()
    together, inside = threading.Barrier(4), threading.Barrier(2)
    calls, got = [], []

    def factory():
        calls.append(1)
        with contextlib.suppress(threading.BrokenBarrierError):
            inside.wait(0.1)  # time for a second one to come in, if it could
        return ignore

    registry.register("fast", factory=factory)

    def ask():
        together.wait(10)
        got.append(registry["fast"])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]
    assert len(set(map(id, got))) == 1


async def test_leaving_lets_everything_end_by_itself_and_awaits_it():  # D1
    registry = CoordinatorRegistry()
    registry.register("one", sleep)
    registry.register("two", sleep)
    async with registry:
        operations = [await registry[name].enqueue(3) for name in ("one", "two")]
    assert [str(each.status) for each in operations] == ["completed"] * 2
    assert_quiet(*registry.created().values())


async def test_all_close_at_the_same_time_within_one_budget():
    registry = CoordinatorRegistry()
    for name in "abc":
        registry.register(name, sleep)
        await registry[name].enqueue(1000)
    start = asyncio.get_running_loop().time()
    reports = await registry.aclose(grace=4, cancel_grace=1)
    assert asyncio.get_running_loop().time() - start == pytest.approx(4)
    assert {name: each.cancelled for name, each in reports.items()} == {"a": 1, "b": 1, "c": 1}


async def test_the_newest_closes_first():
    registry = CoordinatorRegistry()
    order = []
    for name in "abc":
        registry.register(name, ignore)
    for name in "bca":
        registry[name].engine.listen(on_closed=lambda name=name: order.append(name))
    assert list(await registry.aclose()) == ["a", "c", "b"] == order


async def test_the_budget_of_leaving_is_the_registry_s_and_after_an_error_nothing_is_waited_for():
    registry = CoordinatorRegistry(grace=20, cancel_grace=1)
    registry.register("fast", sleep)
    clock = VirtualClock.current()
    start = clock.monotonic()
    async with registry:
        operation = await registry["fast"].enqueue(1000)
    assert str(operation.status) == "cancelled"
    assert clock.monotonic() - start == pytest.approx(20)
    start = clock.monotonic()
    with pytest.raises(ZeroDivisionError):
        async with registry:
            operation = await registry["fast"].enqueue(1000)
            await asyncio.sleep(0.5)
            _ = 1 / 0
    assert str(operation.status) == "cancelled"
    assert clock.monotonic() - start == pytest.approx(0.5)


async def test_a_closed_registry_creates_nothing_and_says_so():
    registry = CoordinatorRegistry()
    registry.register("used", ignore)
    registry.register("unused", ignore)
    used = registry["used"]
    await registry.aclose()
    assert registry.is_closed
    with pytest.raises(RegistryClosed, match="creates no coordinator any more") as caught:
        registry["unused"]
    assert isinstance(caught.value, CoordinatorClosed)
    assert registry["used"] is used
    with pytest.raises(CoordinatorClosed):
        await registry["used"].enqueue(1)


async def test_nothing_is_created_while_it_closes():
    registry = CoordinatorRegistry()
    registry.register("used", sleep)
    registry.register("unused", ignore)
    await registry["used"].enqueue(2)
    closing = asyncio.create_task(registry.aclose())
    await asyncio.sleep(1)
    with pytest.raises(RegistryClosed):
        registry["unused"]
    assert (await closing)["used"].completed == 1


async def test_a_registry_that_is_entered_again_starts_anew():
    registry = CoordinatorRegistry()
    registry.register("fast", ignore)
    seen = []
    for _ in range(2):
        async with registry:
            await registry["fast"].run(1)
            seen.append(registry["fast"])
    assert seen[0] is not seen[1]
    assert [each.total_completed for each in seen] == [1, 1]


def test_a_registry_of_a_module_serves_one_loop_after_another():  # R55
    registry = CoordinatorRegistry()
    registry.register("fast", ignore)

    async def main():
        async with registry:
            await registry["fast"].run(1)

    asyncio.run(main())
    asyncio.run(main())


async def test_one_that_was_closed_by_itself_is_created_anew_and_one_that_drains_is_not():  # D3
    registry = CoordinatorRegistry()
    registry.register("fast", ignore)
    registry.register("slow", ignore)
    async with registry:
        first, slow = registry["fast"], registry["slow"]
        await first.drain()
        assert registry["fast"] is first
        await first.aclose()
        assert registry["fast"] is not first
        await registry["fast"].run(1)
        assert list(registry.created().items()) == [("slow", slow), ("fast", registry["fast"])]


async def test_closing_is_repeatable_also_at_the_same_time():
    registry = CoordinatorRegistry()
    registry.register("fast", sleep)
    await registry["fast"].enqueue(1)
    first, second = await asyncio.gather(registry.aclose(), registry.aclose())
    third = await registry.aclose()
    assert first["fast"].completed == second["fast"].completed == third["fast"].completed == 1
    assert await CoordinatorRegistry().aclose() == {}


async def test_cancelling_the_closing_cancels_what_still_runs():
    registry = CoordinatorRegistry()
    registry.register("fast", sleep)
    operation = await registry["fast"].enqueue(1000)
    closing = asyncio.create_task(registry.aclose(grace=None))
    await asyncio.sleep(1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await asyncio.sleep(0)
    assert str(operation.status) == "cancelled"
    await registry.aclose()
    assert_quiet(registry["fast"])


async def test_a_coordinator_that_cannot_be_closed_does_not_keep_the_others_open():
    registry = CoordinatorRegistry()
    registry.register("here", sleep)
    registry.register("elsewhere", ignore)
    registry.register("elsewhere too", ignore)
    operation = await registry["here"].enqueue(1)
    other = asyncio.new_event_loop()

    used = []  # a coordinator that goes while its loop lives on warns that it was not closed

    async def use_there(name):
        used.append(registry[name])
        await asyncio.to_thread(other.run_until_complete, registry[name].run(1))

    try:
        await use_there("elsewhere")
        with pytest.raises(WrongLoop, match="elsewhere"):
            await registry.aclose()
        assert str(operation.status) == "completed"
        async with registry:
            await use_there("elsewhere")
            await use_there("elsewhere too")
            with pytest.raises(ExceptionGroup) as caught:
                await registry.aclose()
            assert [type(each) for each in caught.value.exceptions] == [WrongLoop, WrongLoop]
            other.close()
    finally:
        other.close()


async def test_it_knows_its_names_and_the_statistics_of_what_it_created():
    registry = CoordinatorRegistry()
    registry.register("fast", ignore)
    registry.register("slow", ignore)
    async with registry:
        assert registry.statistics() == {}
        await registry["slow"].run(1)
        assert registry.names() == ("fast", "slow")
        assert len(registry) == 2
        assert {name: each.completed for name, each in registry.statistics().items()} == {"slow": 1}
        assert repr(registry) == "<CoordinatorRegistry fast, slow*>"
    assert repr(registry) == "<CoordinatorRegistry fast, slow* closed>"
    assert repr(CoordinatorRegistry()) == "<CoordinatorRegistry empty>"


async def forever(_item):
    await asyncio.Event().wait()


async def stubborn(_item):
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(100)
            return


async def test_aclose_has_the_budget_of_the_registry():
    for body, budget in ((forever, 3), (stubborn, 3 + 7)):
        registry = CoordinatorRegistry(grace=3, cancel_grace=7)
        registry.register("a", body)
        await registry["a"].enqueue(1)
        began = VirtualClock.current().monotonic()
        await registry.aclose()
        assert VirtualClock.current().monotonic() - began == budget


async def test_aclose_can_be_given_another_budget_and_none_is_no_limit():
    registry = CoordinatorRegistry(grace=3, cancel_grace=7)
    registry.register("a", stubborn)
    await registry["a"].enqueue(1)
    began = VirtualClock.current().monotonic()
    await registry.aclose(grace=None)
    assert VirtualClock.current().monotonic() - began == 100


@pytest.mark.parametrize("option", ["grace", "cancel_grace"])
@pytest.mark.parametrize("value", [-1, "1", True, float("nan"), 10**400])
async def test_a_wrong_budget_is_refused_and_nothing_is_closed(option, value):
    registry = CoordinatorRegistry()
    with pytest.raises(InvalidOption, match=f"{option}="):
        await registry.aclose(**{option: value})
    assert not registry.is_closed


async def test_a_closed_registry_takes_no_new_name_until_it_is_opened_again():
    registry = CoordinatorRegistry()
    await registry.aclose()
    with pytest.raises(RegistryClosed, match="'late'"):
        registry.register("late", ignore)
    assert "late" not in registry
    async with registry:
        registry.register("late", ignore)
        await registry["late"].run(1)


def factory_of_one(item):
    return ignore


def generating_factory():
    yield ignore


@pytest.mark.parametrize("factory", [factory_of_one, generating_factory])
def test_a_factory_takes_nothing_and_returns(factory):
    with pytest.raises(InvalidBody, match="plain function without parameters"):
        CoordinatorRegistry().register("a", factory=factory)


async def test_a_background_is_declared_without_a_body_and_runs_any_function():
    async def double(number):
        return number * 2

    registry = CoordinatorRegistry()
    registry.register_background("background", max_concurrency=2)
    async with registry:
        background = registry.get("background", Background)
        assert background is registry["background"]
        assert await (await background.spawn(double, 21)) == 42
        assert (background.name, background.max_concurrency) == ("background", 2)


def test_a_background_that_could_not_work_is_refused_when_it_is_declared():
    registry = CoordinatorRegistry()
    with pytest.raises(InvalidOption, match="run_in"):
        registry.register_background("background", run_in="process")
    assert "background" not in registry
