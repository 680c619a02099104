"""What is kept of a run, and what is shown of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import page
from benchmarks.results import Results, stored
from benchmarks.rows import Bound, Curve, Row
from benchmarks.table import comparison, limits, put_between, tables

ROOT = Path(__file__).parent.parent.parent


def results(python="3.12", loop="asyncio", measured=2.0):
    rows = [
        Row(
            work="no-op body, 8 at once",
            against="queue + workers",
            measured=measured,
            bound=Bound(3.0, 4.0),
            ours=4e-6,
            peer=2e-6,
        ),
        Row(work="no-op body, 8 at once", against="anyio", measured=0.5, ours=4e-6, peer=8e-6),
    ]
    curve = Curve(title="stop", axis="items pending", lines={"ours": [(1, 2e-6), (10, 3e-6)], "list": [(1, 1e-6)]})
    return Results(python=python, loop=loop, answers={"overhead": rows, "growth": [curve]})


def test_results_are_read_as_they_were_saved(tmp_path):
    path = results().save(tmp_path)
    assert path.name == "3.12-asyncio.json"
    assert list(Results.load(path).rows("overhead")) == list(results().rows("overhead"))
    assert path.read_text() == results().save(tmp_path).read_text()


def test_a_run_of_some_questions_replaces_theirs_and_keeps_the_others(tmp_path):
    results().save(tmp_path)
    ids = Row(work="id", against="counting", measured=4.0)
    Results(python="3.12", loop="asyncio", answers={"ids": [ids]}).save(tmp_path)
    (merged,) = stored(tmp_path)
    assert list(merged.rows("ids")) == [ids]
    assert list(merged.rows("overhead")) == list(results().rows("overhead"))


def test_quick_results_are_not_among_the_stored_ones(tmp_path):
    results().save(tmp_path, "-quick")
    assert stored(tmp_path) == []


def test_stored_results_are_in_the_order_of_pythons_and_loops(tmp_path):
    for python, loop in (("3.12", "uvloop"), ("3.11", "asyncio"), ("3.12", "asyncio")):
        results(python, loop).save(tmp_path)
    assert [each.name for each in stored(tmp_path)] == ["3.11-asyncio", "3.12-asyncio", "3.12-uvloop"]


def test_a_table_has_a_column_for_each_run_and_says_what_is_not_met():
    text = tables([results("3.11", measured=3.5), results("3.12", measured=3.5), results("3.12", "uvloop")])
    head, _, first, second = text.splitlines()[2:]
    assert head == "| what | against | at most | 3.11 | 3.12 | 3.12, uvloop |"
    assert first == (
        "| no-op body, 8 at once | queue + workers | 3.00 × (3.11: 4.00 ×) | 3.50 × | **3.50 ×, not met** | 2.00 × |"
    )
    assert second.split(" | ")[2:] == ["–", "0.50 ×", "0.50 ×", "0.50 × |"]


def test_a_row_that_a_run_does_not_have_stays_open():
    other = Results(python="3.13", loop="asyncio", answers={"overhead": [Row(work="x", against="y", measured=1.0)]})
    lines = tables([results(), other]).splitlines()
    assert lines[-1] == "| x | y | – | – | 1.00 × |"


def test_every_line_of_a_table_has_the_same_number_of_cells():
    counts = {line.count("|") for line in tables([results(), results("3.13")]).splitlines() if "|" in line}
    assert counts == {6}


def test_the_comparison_has_each_peer_by_cost():
    assert comparison([results()]).splitlines()[4:] == [
        "| queue + workers | 2,000 | 2.00 × |",
        "| anyio | 8,000 | 0.50 × |",
    ]


def test_the_limits_count_what_is_met_and_name_what_is_not():
    assert limits([results()]) == "- Python 3.12: 1 of 1 bounds are met."
    assert "0 of 1" in limits([results(measured=9.0)])
    assert "no-op body, 8 at once, against queue + workers: **9.00 ×, not met**" in limits([results(measured=9.0)])


def test_text_is_put_between_its_markers_and_nothing_else_changes(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- a: begin -->\nold\n<!-- a: end -->\nafter\n<!-- b: begin --><!-- b: end -->\n")
    put_between(path, "a", r"new \1")
    once = path.read_text()
    assert once == (
        "before\n<!-- a: begin -->\n\nnew \\1\n\n<!-- a: end -->\nafter\n<!-- b: begin --><!-- b: end -->\n"
    )
    put_between(path, "a", r"new \1")
    assert path.read_text() == once


@pytest.mark.parametrize("text", ["", "<!-- a: begin -->", "<!-- a: begin --><!-- a: end -->" * 2])
def test_markers_that_are_missing_or_twice_there_are_an_error(tmp_path, text):
    path = tmp_path / "page.md"
    path.write_text(text)
    with pytest.raises(ValueError, match="must have exactly one"):
        put_between(path, "a", "new")
    assert path.read_text() == text


def test_the_page_has_all_the_markers_and_is_written_without_results(tmp_path):
    write(tmp_path, [])
    text = (tmp_path / "performance.md").read_text()
    assert text.count("No results are stored yet") == 3
    assert "svg" not in text


def test_the_page_shows_the_plots_of_the_newest_python_and_they_are_the_same_every_time(tmp_path):
    pytest.importorskip("matplotlib")
    every = [results("3.11"), results("3.13", "uvloop"), results("3.12")]
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        write(folder, every)
    text = (first / "performance.md").read_text()
    for name in ("overhead", "growth-stop"):
        assert f"(performance/{name}.svg)" in text
        picture = (first / "performance" / f"{name}.svg").read_text()
        assert picture == (second / "performance" / f"{name}.svg").read_text()
        assert "<dc:date>" not in picture
    assert "Python 3.12" in (first / "performance" / "overhead.svg").read_text()


def write(folder, every):
    (folder / "performance.md").write_text((ROOT / "docs" / "performance.md").read_text())
    page.write(every, folder)
