"""The newest operations of each owner (row P3), and what a view shows of them (row P6)."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import weakref

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ephemerals import InvalidOption, InvalidOptionType, OwnerWindow, WorkCoordinator, format_id, status_of
from ephemerals.operation import Operation
from ephemerals.owner_window import duration_text
from ephemerals.testing import VirtualClock, assert_quiet

HOUR = 3600.0
MINUTE = 60.0


def made(number):
    operation = Operation.__new__(Operation)  # one that is never run
    operation.id = number
    return operation


class Result:
    pass


async def answer(item):
    return Result()


def test_the_newest_five_are_kept_newest_first():
    window = OwnerWindow()
    operations = [made(number) for number in range(1, 8)]
    for each in operations:
        window.add("ada", each)
    assert window.list("ada") == operations[:1:-1]
    assert window.get("ada", 2) is None
    assert window.get("ada", 3) is operations[2]
    assert len(window) == 5


def test_another_owner_s_operation_is_simply_not_found():
    window = OwnerWindow()
    operation = made(1)
    window.add("ada", operation)
    assert window.get("bob", 1) is None
    assert window.list("bob") == []
    assert window.owner_count == 1


def test_adding_an_operation_again_does_not_count_twice():
    window = OwnerWindow(max_per_owner=2)
    first, second = made(1), made(2)
    for each in (first, second, first):
        window.add("ada", each)
    assert window.list("ada") == [second, first]


def test_an_owner_is_forgotten_an_hour_after_the_last_access(ephemeral_clock):
    window = OwnerWindow()
    window.add("ada", made(1))
    for access in (lambda: window.list("ada"), lambda: window.get("ada", 1), lambda: window.get("ada", 99)):
        ephemeral_clock.advance(HOUR - 1)
        access()
    ephemeral_clock.advance(HOUR - 1)
    assert window.list("ada")
    ephemeral_clock.advance(HOUR)
    assert window.list("ada") == []


def test_six_hours_after_the_first_entry_it_is_over_however_active_the_owner_is(ephemeral_clock):
    window = OwnerWindow()
    for number in range(1, 13):
        window.add("ada", made(number))
        ephemeral_clock.advance(HOUR / 2)
    assert window.list("ada") == []
    window.add("ada", made(13))
    ephemeral_clock.advance(HOUR - 1)
    assert len(window.list("ada")) == 1


def test_looking_at_one_owner_renews_nobody_else(ephemeral_clock):
    window = OwnerWindow()
    window.add("ada", made(1))
    window.add("bob", made(2))
    ephemeral_clock.advance(HOUR - 1)
    window.get("bob", 1)
    ephemeral_clock.advance(1)
    assert (window.list("ada"), len(window.list("bob"))) == ([], 1)


def test_setting_the_wall_clock_changes_nothing(ephemeral_clock):
    window = OwnerWindow()
    window.add("ada", made(1))
    ephemeral_clock.step_wall(10 * HOUR)
    assert window.list("ada")


def test_the_owner_not_seen_for_longest_goes_first():
    window = OwnerWindow(max_owners=2)
    window.add("ada", made(1))
    window.add("bob", made(2))
    window.list("ada")
    window.add("eve", made(3))
    assert [bool(window.list(each)) for each in ("ada", "bob", "eve")] == [True, False, True]


def test_none_means_no_limit(ephemeral_clock):
    window = OwnerWindow(max_per_owner=None, absolute=None, sliding=None, max_owners=None)
    for number in range(1, 30):
        window.add("ada", made(number))
        window.add(number, made(number))
    ephemeral_clock.advance(1000 * HOUR)
    assert len(window.list("ada")) == 29
    assert window.owner_count == 30


async def test_an_idle_window_empties_itself_on_time():
    window = OwnerWindow()
    window.add("ada", made(1))
    await asyncio.sleep(30 * MINUTE)
    window.list("ada")
    window.add("bob", made(2))
    await asyncio.sleep(30 * MINUTE)  # the timer fires here, too early for anybody
    assert window._leftovers() == {"owners": 2, "timers": 1}
    await asyncio.sleep(30 * MINUTE - 0.01)
    assert window._leftovers() == {"owners": 2, "timers": 1}
    await asyncio.sleep(0.02)
    assert window._leftovers() == {"owners": 0, "timers": 0}


async def test_the_absolute_bound_has_its_timer_too():
    window = OwnerWindow(sliding=None, absolute=2 * HOUR)
    window.add("ada", made(1))
    await asyncio.sleep(2 * HOUR - 0.01)
    window.list("ada")
    assert window._leftovers()["owners"] == 1
    await asyncio.sleep(0.02)
    assert window._leftovers() == {"owners": 0, "timers": 0}


async def test_one_timer_serves_any_number_of_owners():
    window = OwnerWindow()
    before = len(asyncio.get_running_loop()._scheduled)
    for number in range(1, 100):
        window.add(number, made(number))
    assert len(asyncio.get_running_loop()._scheduled) == before + 1


@pytest.mark.parametrize("way", ["size", "age", "forget", "clear", "owners", "window"])
async def test_what_leaves_drops_the_handle_and_with_it_the_result(way):
    window = OwnerWindow(max_per_owner=1, max_owners=1)
    gc.disable()
    try:
        async with WorkCoordinator(answer) as coordinator:
            operation = await coordinator.enqueue(1)
            handle, result = weakref.ref(operation), weakref.ref(await operation)
            window.add("ada", operation)
            other = await coordinator.enqueue(2)
            await coordinator.join()
            del operation
            assert handle() is not None
            assert result() is not None
            match way:
                case "size":
                    window.add("ada", other)
                case "age":
                    await asyncio.sleep(HOUR + 1)
                case "forget":
                    assert window.forget("ada") == 1
                    assert window.forget("ada") == 0
                case "clear":
                    window.clear()
                case "owners":
                    window.add("bob", other)
                case "window":
                    window = None
            assert handle() is None
            assert result() is None
    finally:
        gc.enable()


async def test_nothing_is_left_when_the_last_owner_is_forgotten():
    window = OwnerWindow()
    window.add("ada", made(1))
    window.add("bob", made(2))
    window.forget("ada")
    with pytest.raises(AssertionError, match="1 owners"):
        assert_quiet(window)
    window.forget("bob")
    assert_quiet(window)


async def test_a_window_that_is_dropped_does_not_live_on_in_its_timer():
    window = OwnerWindow()
    window.add("ada", made(1))
    seen = weakref.ref(window)
    del window
    assert seen() is None
    await asyncio.sleep(2 * HOUR)  # the timer finds nobody


def test_a_window_of_a_module_serves_one_loop_after_another():
    window = OwnerWindow(sliding=0.02)

    async def main(number):
        window.add("ada", made(number))
        await asyncio.sleep(0.05)
        assert window._leftovers() == {"owners": 0, "timers": 0}

    asyncio.run(main(1))

    async def leave(number):
        window.add("ada", made(number))

    asyncio.run(leave(2))
    asyncio.run(main(3))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_per_owner": 0}, InvalidOption),
        ({"max_owners": -1}, InvalidOption),
        ({"absolute": 0}, InvalidOption),
        ({"sliding": -1}, InvalidOption),
        ({"sliding": "1 h"}, InvalidOptionType),
        ({"clock": 7}, InvalidOptionType),
    ],
)
def test_an_option_that_cannot_be_is_named(options, error):
    with pytest.raises(error, match=f"^{next(iter(options))}="):
        OwnerWindow(**options)


def test_only_operations_are_kept():
    with pytest.raises(InvalidOptionType, match="expected an Operation"):
        OwnerWindow().add("ada", "text")


async def test_a_view_shows_the_life_of_an_operation():
    async def translate(item):
        await asyncio.sleep(75)
        if item == "bad":
            raise ValueError("no")
        return item

    async with WorkCoordinator(translate, max_concurrency=1) as coordinator:
        good = await coordinator.enqueue("good", metadata={"language": "es"})
        bad = await coordinator.enqueue("bad")
        waiting = status_of(good)
        assert (str(waiting.status), waiting.is_finished, waiting.duration_text) == ("pending", False, "0.0 s")
        await asyncio.sleep(2.5)
        running = status_of(good)
        assert (str(running.status), running.is_finished, running.duration_text) == ("running", False, "2.5 s")
        assert (running.id, running.name.rpartition(".")[2]) == (format_id(good.id), "translate")
        assert running.metadata["language"] == "es"
        await coordinator.join()
        done, failed = status_of(good), status_of(bad)
        assert (done.is_finished, done.is_completed, done.is_failed) == (True, True, False)
        assert (failed.is_finished, failed.is_completed, failed.is_failed) == (True, False, True)
        assert done.duration_text == failed.duration_text == "1 min 15 s"
        assert status_of(coordinator.get(good.id)) == done
    with pytest.raises(dataclasses.FrozenInstanceError):
        done.id = "other"
    with pytest.raises(InvalidOptionType, match="expected an Operation"):
        status_of(7)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (59.94, "59.9 s"), (59.95, "1 min 0 s"), (3599.4, "59 min 59 s"), (3599.5, "1 h 0 min")],
)
def test_a_duration_reads_as_people_say_it(seconds, text):
    assert duration_text(seconds) == text


class Model(RuleBasedStateMachine):
    """Compare with the simplest thing that keeps the rules: a list of entries that are all looked at every time."""

    owners = st.sampled_from(["ada", "bob", "eve", "dan"])

    @initialize(
        per_owner=st.none() | st.integers(1, 3),
        max_owners=st.none() | st.integers(1, 3),
        absolute=st.none() | st.integers(1, 20),
        sliding=st.none() | st.integers(1, 20),
    )
    def start(self, per_owner, max_owners, absolute, sliding):
        self.clock = VirtualClock()
        self.per_owner, self.max_owners, self.absolute, self.sliding = per_owner, max_owners, absolute, sliding
        self.window = OwnerWindow(
            max_per_owner=per_owner, max_owners=max_owners, absolute=absolute, sliding=sliding, clock=self.clock
        )
        self.entries = []  # [owner, first, last, operations], the one accessed last at the end
        self.number = 0

    def access(self, owner):
        now = self.clock.monotonic()
        self.entries = [
            entry
            for entry in self.entries
            if (self.absolute is None or entry[1] + self.absolute > now)
            and (self.sliding is None or entry[2] + self.sliding > now)
        ]
        found = next((entry for entry in self.entries if entry[0] == owner), None)
        if found is not None:
            found[2] = now
            self.entries.remove(found)
            self.entries.append(found)
        return found

    @rule(owner=owners)
    def add(self, owner):
        self.number += 1
        operation = made(self.number)
        self.window.add(owner, operation)
        entry = self.access(owner)
        if entry is None:
            now = self.clock.monotonic()
            entry = [owner, now, now, []]
            self.entries.append(entry)
        entry[3].append(operation)
        if self.per_owner is not None:
            del entry[3][: -self.per_owner]
        if self.max_owners is not None:
            del self.entries[: -self.max_owners]

    @rule(owner=owners)
    def look(self, owner):
        entry = self.access(owner)
        assert self.window.list(owner) == (entry[3][::-1] if entry else [])

    @rule(owner=owners, back=st.integers(0, 6))
    def fetch(self, owner, back):
        entry = self.access(owner)
        wanted = self.number - back
        held = [each for each in entry[3] if each.id == wanted] if entry else []
        assert self.window.get(owner, wanted) is (held[0] if held else None)

    @rule(owner=owners)
    def forget(self, owner):
        entry = self.access(None) or next((each for each in self.entries if each[0] == owner), None)
        assert len(self.window) == sum(len(each[3]) for each in self.entries)
        assert self.window.forget(owner) == (len(entry[3]) if entry else 0)
        self.entries = [each for each in self.entries if each[0] != owner]

    @rule(seconds=st.integers(0, 10))
    def wait(self, seconds):
        self.clock.advance(seconds)

    @invariant()
    def holds_as_many(self):
        self.access(None)
        assert self.window.owner_count == len(self.entries)


TestModel = Model.TestCase
