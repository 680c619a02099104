"""A virtual clock moves only when told, and keeps wall time and monotonic time apart."""

from __future__ import annotations

import math
import threading
from datetime import UTC, datetime

import pytest

from ephemerals.clock import Clock, system_clock, utc
from ephemerals.errors import InvalidOption
from ephemerals.testing import VirtualClock


def test_it_starts_at_fixed_instants_and_stands_still():
    clock = VirtualClock()
    assert clock.monotonic() == clock.monotonic() == 1000.0
    assert utc(clock.time()) == datetime(2026, 1, 1, tzinfo=UTC)


def test_it_can_start_elsewhere():
    clock = VirtualClock(monotonic=5.0, time=7.0)
    assert (clock.monotonic(), clock.time()) == (5.0, 7.0)


def test_it_is_a_clock_for_whoever_takes_one():
    assert isinstance(VirtualClock(), Clock)


def test_advance_moves_both_readings():
    clock = VirtualClock(monotonic=0.0, time=100.0)
    clock.advance(2.5)
    assert (clock.monotonic(), clock.time()) == (2.5, 102.5)


def test_advance_to_is_exact_and_never_goes_back():
    clock = VirtualClock(monotonic=0.1)
    clock.advance_to(0.3)
    clock.advance_to(0.2)
    assert clock.monotonic() == 0.3


def test_setting_the_wall_clock_leaves_monotonic_time_alone():
    clock = VirtualClock(monotonic=10.0, time=100.0)
    clock.step_wall(-30)
    assert (clock.monotonic(), clock.time()) == (10.0, 70.0)
    clock.step_wall(40)
    assert (clock.monotonic(), clock.time()) == (10.0, 110.0)


def test_a_suspended_machine_loses_monotonic_time():
    clock = VirtualClock(monotonic=10.0, time=100.0)
    clock.suspend(3600)
    assert (clock.monotonic(), clock.time()) == (10.0, 3700.0)


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan])
@pytest.mark.parametrize("move", [VirtualClock.advance, VirtualClock.suspend])
def test_a_span_that_is_none_is_refused(move, seconds):
    with pytest.raises(InvalidOption, match="seconds="):
        move(VirtualClock(), seconds)


def test_installed_it_stands_in_for_the_system_clock():
    before = system_clock.monotonic, system_clock.time
    outer, inner = VirtualClock(monotonic=1.0), VirtualClock(monotonic=2.0, time=3.0)
    with outer.installed() as used:
        assert used is outer
        with inner.installed():
            assert (system_clock.monotonic(), system_clock.time()) == (2.0, 3.0)
        assert system_clock.monotonic() == 1.0
    assert (system_clock.monotonic, system_clock.time) == before


def test_the_system_clock_is_back_after_an_error():
    before = system_clock.monotonic, system_clock.time
    with pytest.raises(ZeroDivisionError), VirtualClock().installed():
        _ = 1 / 0
    assert (system_clock.monotonic, system_clock.time) == before


def test_external_work_is_counted_and_ends_once():
    clock = VirtualClock()
    with clock.external_work() as first:
        second = clock.external_work()
        assert clock.working == 2
        first.end()
        assert clock.working == 1
    second.end()
    second.end()
    assert clock.working == 0


def test_external_work_may_be_counted_by_many_threads():
    clock = VirtualClock()

    def count():
        for _ in range(1000):
            with clock.external_work():
                pass

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.working == 0


def test_there_is_no_current_clock_outside_a_virtual_loop():
    with pytest.raises(RuntimeError):
        VirtualClock.current()
