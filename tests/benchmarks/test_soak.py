"""A soak of seconds, and that a soak would notice."""

from __future__ import annotations

import pytest
from benchmarks import line as line_
from benchmarks import soak as soaking
from benchmarks.line import Line
from benchmarks.soak import Traffic, soak

from ephemerals.testing import run


def test_mixed_traffic_of_some_seconds_breaks_nothing_and_leaves_nothing():
    traffic = soak(6.0, seed=5)
    every = [line.results() for line in traffic.lines]
    assert min(counts["enqueued"] for counts in every) > 500
    for what in every[0]:  # a soak in which nothing fails proves little
        assert sum(counts[what] for counts in every), what


def test_the_command_soaks_in_both_kinds_of_time(capsys, monkeypatch):
    monkeypatch.setattr(soaking, "_LEVEL", 10.0)
    assert soaking.main(["--virtual", "1", "--real", "0.3"]) == 0
    printed = capsys.readouterr().out
    assert "1 virtual seconds" in printed
    assert "0.3 real seconds" in printed
    assert printed.count("quiet; memory is") == 2


def test_memory_that_has_grown_is_the_exit_code(capsys, monkeypatch):
    monkeypatch.setattr(soaking, "_LEVEL", 0.0)
    assert soaking.main(["--virtual", "1", "--real", "0.1"]) == 1
    assert "MEMORY HAS GROWN" in capsys.readouterr().out


def test_an_item_out_of_order_is_noticed(monkeypatch):
    order = Line.body

    async def backwards(self, item, operation):
        self._started[item.key, item.lane] += 1_000
        return await order(self, item, operation)

    monkeypatch.setattr(Line, "body", backwards)
    with pytest.raises(ExceptionGroup) as failure:
        run(Traffic().run(2.0))
    assert failure.group_contains(AssertionError, match="out of order within its key")


def test_more_at_once_than_allowed_is_noticed(monkeypatch):
    monkeypatch.setattr(line_, "WIDEST", 2)
    traffic = Traffic()
    monkeypatch.setattr(line_, "WIDEST", 1)
    for line in traffic.lines:
        monkeypatch.setattr(line.coordinator, "set_max_concurrency", lambda _limit: None)
    with pytest.raises(ExceptionGroup) as failure:
        run(traffic.run(2.0))
    assert failure.group_contains(AssertionError, match="2 at once")
