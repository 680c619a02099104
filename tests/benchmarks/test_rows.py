"""Answers and their bounds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from benchmarks.plan import TINY
from benchmarks.rows import Bound, Curve, Row, against, climb

ROW = Row(work="id", against="counting", measured=5.0, bound=Bound(5.0), ours=5e-8, peer=1e-8)


def test_a_bound_holds_up_to_itself():
    assert ROW.holds()
    assert not replace(ROW, measured=5.001).holds()


def test_the_bound_for_older_pythons_is_one_of_its_own_if_there_is_one():
    row = replace(ROW, measured=6.0, bound=Bound(5.5, 8.0))
    assert row.holds((3, 11))
    assert not row.holds((3, 12))
    assert not row.holds((3, 13))
    assert Bound(1.3).on((3, 11)) == 1.3


def test_twice_a_bound_is_broken_grossly_and_less_is_not():
    assert replace(ROW, measured=9.9).holds(gross=True)
    assert not replace(ROW, measured=10.1).holds(gross=True)


def test_what_has_no_bound_holds():
    assert replace(ROW, bound=None, measured=1e9).holds()


def test_a_row_gives_ratio_and_costs_for_each_item():
    row = against(TINY, "work", lambda: 4.0, ("peer", lambda: 2.0), Bound(1.0), items=100)
    assert (row.measured, row.ours, row.peer) == (2.0, 0.04, 0.02)
    assert against(TINY, "work", lambda: 4.0, ("peer", lambda: 2.0), None).ours == 4.0 / TINY.items


@pytest.mark.parametrize("bound", [None, Bound(2.0), Bound(2.0, 3.0)])
def test_a_row_survives_json(bound):
    row = replace(ROW, bound=bound)
    assert Row.from_dict(json.loads(json.dumps(row.to_dict()))) == row


def test_a_curve_survives_json():
    curve = Curve(title="stop", axis="items", lines={"ours": [(1, 2.0), (10, 3.0)]})
    again = Curve.from_dict(json.loads(json.dumps(curve.to_dict())))
    assert [tuple(point) for point in again.lines["ours"]] == curve.lines["ours"]


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([1.0], 1.0),
        ([1.0, 1.0, 1.0], 1.0),
        ([4.0, 2.0, 1.0], 1.0),  # the more the cheaper
        ([1.0, 10.0, 100.0], 100.0),  # quadratic
        ([4.0, 1.0, 3.0], 3.0),  # a dear start hides nothing
        ([1.0, 5.0, 1.0], 5.0),  # nor does a cheap end
    ],
)
def test_how_much_dearer_an_item_gets_is_judged_from_the_cheapest_before(costs, expected):
    assert climb([(10**power, cost) for power, cost in enumerate(costs)]) == expected
