"""Ids: unique, not sequential, short to write, and new in a forked process."""

from __future__ import annotations

import os
import subprocess
import sys
import timeit
from itertools import count, islice, pairwise

import pytest

from ephemerals import InvalidOption, InvalidOptionType, format_id, ids, parse_id
from ephemerals.ids import next_id


def test_ids_are_positive_numbers_of_63_bits_that_never_repeat():
    many = [next_id() for _ in range(200_000)]
    assert len(set(many)) == len(many)
    assert all(0 < each < 2**63 for each in many)


def test_ids_are_not_sequential():
    steps = {second - first for first, second in pairwise(islice(iter(next_id, None), 1000))}
    assert 1 not in steps
    assert -1 not in steps


def test_id_zero_is_left_out(monkeypatch):
    monkeypatch.setattr(ids.secrets, "randbits", lambda _bits: 0)
    assert next(ids._stream()) == ids._STEP


def test_two_processes_with_the_same_pid_and_start_time_share_no_id():  # fault I1
    script = "from ephemerals.ids import next_id; print(*(next_id() for _ in range(20_000)))"
    runs = [
        set(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split())
        for _ in range(2)
    ]
    assert all(len(each) == 20_000 for each in runs)
    assert runs[0].isdisjoint(runs[1])


def test_a_forked_child_continues_with_other_ids():
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, " ".join(str(next_id()) for _ in range(100)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        theirs = set(map(int, pipe.read().split()))
    os.waitpid(child, 0)
    ours = {next_id() for _ in range(10_000)}
    assert len(theirs) == 100
    assert theirs.isdisjoint(ours)


@pytest.mark.parametrize("number", [0, 1, 35, 36, 2**31, 2**63 - 1])
def test_the_text_form_is_short_lower_case_and_leads_back(number):
    text = format_id(number)
    assert text == text.lower()
    assert text.isalnum()
    assert len(text) <= 13
    assert parse_id(text) == number


@pytest.mark.parametrize("number", [-1, 2**63])
def test_a_number_that_is_no_id_has_no_text_form(number):
    with pytest.raises(InvalidOption, match=r"operation_id=.*from 0 to 2\*\*63"):
        format_id(number)


def test_only_an_int_has_a_text_form():
    with pytest.raises(InvalidOptionType, match=r"operation_id='7'.*an int"):
        format_id("7")


@pytest.mark.parametrize("text", ["", "A1", "1 ", " 1", "-1", "+1", "1_0", "01", "é", "z" * 13, "1" * 14, "1\n", "٣"])
def test_a_text_that_no_id_has_is_refused(text):
    with pytest.raises(InvalidOption, match=r"text=.*as format_id\(\) returns it"):
        parse_id(text)


def test_only_a_text_is_parsed():
    with pytest.raises(InvalidOptionType, match="text=7"):
        parse_id(7)


def test_a_long_wrong_text_is_not_repeated_in_full():
    with pytest.raises(InvalidOption) as caught:
        parse_id("!" * 10_000)
    assert len(str(caught.value)) < 200


def test_an_id_costs_less_than_five_steps_of_a_counter():
    step = count().__next__

    def cost(function):
        return min(timeit.repeat(function, number=20_000, repeat=7))

    assert cost(next_id) < 5 * cost(lambda: step())  # noqa: PLW0108 - both pay for one Python call
