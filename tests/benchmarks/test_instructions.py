"""Counting instructions, without counting: that takes minutes."""

from __future__ import annotations

import json

import pytest
from benchmarks import instructions


def test_a_tenth_more_than_recorded_is_allowed_and_no_more():
    recorded = {"none": {"ours": 5.0}, "once": {"ours": 2.0}}
    assert instructions.exceeded({"none": {"ours": 5.4}, "once": {"ours": 2.1}}, recorded) == []
    (line,) = instructions.exceeded({"none": {"ours": 5.6}, "once": {"ours": 2.1}}, recorded)
    assert "body none: 5.60 ×, recorded 5.00 ×" in line


def test_what_is_not_recorded_is_not_judged():
    assert instructions.exceeded({"none": {"ours": 99.0}}, {}) == []


def test_without_valgrind_it_passes_loudly(monkeypatch, capsys):
    monkeypatch.setattr(instructions.shutil, "which", lambda _: None)
    assert instructions.main([]) == 0
    assert "INSTRUCTIONS ARE NOT COUNTED: valgrind is not installed." in capsys.readouterr().out


def test_what_was_recorded_for_this_build_is_the_measure(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(instructions.shutil, "which", lambda _: "/usr/bin/valgrind")
    monkeypatch.setattr(instructions, "RECORD", tmp_path / "instructions.json")
    counted = {"none": {"ours": 5.0}}
    monkeypatch.setattr(instructions, "count", lambda: counted)
    assert instructions.main([]) == 0
    assert "nothing is recorded for" in capsys.readouterr().out
    assert instructions.main(["--record"]) == 0
    assert json.loads(instructions.RECORD.read_text()) == {instructions.build(): counted}
    counted = {"none": {"ours": 6.0}}
    assert instructions.main([]) == 1
    assert "MORE INSTRUCTIONS" in capsys.readouterr().out


@pytest.mark.parametrize("side", instructions.SIDES)
@pytest.mark.parametrize("body", instructions.BODIES)
def test_each_side_runs(side, body):
    assert instructions.main(["--run", side, body, "20"]) == 0
