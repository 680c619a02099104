"""Every question can be asked, and a run says what it has found."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks import __main__ as command
from benchmarks import page, questions
from benchmarks.plan import TINY
from benchmarks.questions import QUESTIONS, question
from benchmarks.rows import Bound, Curve, Row

FOLDER = Path(questions.__file__).parent


def test_every_file_is_asked():
    assert {path.stem for path in FOLDER.glob("*.py")} - {"__init__"} == set(QUESTIONS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_answered_in_rows_that_mean_something(name):
    answer = list(question(name).ask(TINY))
    rows = [each for each in answer if isinstance(each, Row)]
    assert any(row.bound for row in rows), "it holds nothing to a bound"
    assert len({(row.work, row.against) for row in rows}) == len(rows)
    for row in rows:
        assert 0.0 < row.measured < math.inf
        assert (row.ours or 1.0) > 0.0
        assert (row.peer or 1.0) > 0.0
    for curve in (each for each in answer if isinstance(each, Curve)):
        for points in curve.lines.values():
            assert [number for number, _ in points] == sorted({number for number, _ in points})
            assert all(cost > 0.0 for _, cost in points)


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Replace the questions by one whose answer the test gives; results and page stay out of the repository."""
    answer = []
    monkeypatch.setattr(command, "QUESTIONS", ("ids",))
    monkeypatch.setattr(command, "question", lambda _name: SimpleNamespace(TITLE="Ids", ask=lambda _plan: answer))
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    written = []
    monkeypatch.setattr(page, "write", lambda: written.append(True))
    return SimpleNamespace(answer=answer, written=written, folder=tmp_path)


@pytest.mark.parametrize(
    ("measured", "arguments", "code"),
    [(1.0, [], 0), (1.5, [], 1), (1.5, ["--gross"], 0), (2.5, ["--gross"], 1), (2.5, ["--quick", "ids"], 1)],
)
def test_a_broken_bound_is_the_exit_code(asked, capsys, measured, arguments, code):
    asked.answer.append(Row(work="id", against="counting", measured=measured, bound=Bound(1.0)))
    assert command.main(arguments) == code
    printed = capsys.readouterr().out
    assert f"{measured:.2f} ×" in printed
    assert "at most 1.00 ×" in printed
    assert ("holds" in printed) == (measured <= 1.0)
    assert ("NOT MET: id, against counting" in printed) == bool(code)


def test_a_full_run_writes_the_page_and_a_quick_one_does_not(asked):
    asked.answer.append(Row(work="id", against="counting", measured=1.0))
    command.main(["--quick"])
    assert not asked.written
    assert [path.name.endswith("-quick.json") for path in asked.folder.iterdir()] == [True]
    command.main([])
    assert asked.written
    assert len(list(asked.folder.iterdir())) == 2


def test_a_question_that_does_not_exist_is_refused_with_the_names_of_those_that_do(capsys):
    with pytest.raises(SystemExit):
        command.main(["keys"])
    assert "no such question: keys; there are overhead, " in capsys.readouterr().err
