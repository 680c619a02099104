"""The parts that need no process: commands made of lines, keys, rhythm, and lines read from a pipe."""

from __future__ import annotations

import asyncio
import os
import shlex
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemerals.cli.keys import key_selector
from ephemerals.cli.pacing import Pacer
from ephemerals.cli.report import Report
from ephemerals.cli.streams import Outlet, count_left, lines
from ephemerals.cli.template import Template
from ephemerals.cli.text import printable


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("gzip",), ["gzip", "a/b.tar.gz"]),
        (("cp", "{}", "{}.bak"), ["cp", "a/b.tar.gz", "a/b.tar.gz.bak"]),
        (("x", "{.}", "{/}", "{//}", "{/.}", "{#}"), ["x", "a/b.tar", "b.tar.gz", "a", "b.tar", "7"]),
        (("{}", "x"), ["a/b.tar.gz", "x"]),
        (("awk", "{print}"), ["awk", "{print}", "a/b.tar.gz"]),
        (("echo", "{{}}"), ["echo", "{a/b.tar.gz}"]),
    ],
)
def test_the_line_takes_its_place_in_the_command(words, command):
    assert Template(words).command("a/b.tar.gz", 7) == command


def test_what_stands_in_a_line_is_not_replaced_again():
    assert Template(("echo", "{}")).command("{#} {}", 7) == ["echo", "{#} {}"]


def test_a_file_without_a_folder_lies_here():
    assert Template(("echo", "{//}")).command("file", 1) == ["echo", "."]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_in_a_shell_every_line_is_one_word(line):
    shell, option, script = Template(("printf", "{}"), shell=True).command(line, 1)
    assert [shell, option, *shlex.split(script)] == ["/bin/sh", "-c", "printf", line]


@pytest.mark.parametrize(
    ("key", "line", "found"),
    [
        ("1", "  a  b", "a"),
        ("2", "a\tb c", "b"),
        ("3", "a b", ""),
        ("0", " a b ", " a b "),
        ("2", "", ""),
        ("-1", "a\tb c ", "c"),
        ("-2", "a\tb c", "b"),
        ("-3", "a\tb c", "a"),
        ("-4", "a\tb c", ""),
        ("-1", " ", ""),
        ("[-]1", "-1 1", "-1"),
        (r"id=(\d+)", "x id=12 id=13", "12"),
        (r"\d+", "x 12", "12"),
        (r"(a)|b", "b", ""),
        (r"\d", "none", ""),
    ],
)
def test_the_key_is_a_field_or_what_is_found(key, line, found):
    assert key_selector(key)(line) == found


def test_a_wrong_expression_is_told():
    with pytest.raises(ValueError, match=r"'\[' is neither the number of a field nor a regular expression"):
        key_selector("[")


async def test_turns_come_in_a_steady_rhythm_in_the_order_of_the_calls():
    loop = asyncio.get_running_loop()
    pacer, began, starts = Pacer(0.5), loop.time(), []

    async def one(name):
        await pacer.turn()
        starts.append((name, loop.time() - began))

    await asyncio.gather(*map(one, "abc"))
    await asyncio.sleep(10)
    await asyncio.gather(*map(one, "de"))
    assert [name for name, _ in starts] == list("abcde")
    assert [time for _, time in starts] == pytest.approx([0, 0.5, 1, 11, 11.5])


async def test_without_a_rate_nobody_waits():
    pacer = Pacer(None)
    for _ in range(100):
        await pacer.turn()


async def read_all(chunks, separator=b"\n"):
    reading, writing = os.pipe()

    async def write():
        for chunk in chunks:
            os.write(writing, chunk)
            await asyncio.sleep(0.001)
        os.close(writing)

    try:
        task = asyncio.create_task(write())
        got = [line async for line in lines(reading, separator)]
        await task
        return got
    finally:
        os.close(reading)


@given(
    text=st.binary().map(lambda data: data.replace(b"a", b"\n")),
    cuts=st.lists(st.integers(0, 50), max_size=4),
)
def test_lines_are_the_same_however_they_arrive(text, cuts):
    edges = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    chunks = [text[start:end] for start, end in pairwise(edges)]
    expected = text.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert asyncio.run(read_all(chunks)) == expected


@pytest.mark.parametrize(("text", "count"), [(b"a\nb\n", 2), (b"a\nb", 2), (b"\n", 1), (b"x" * 3_000_000, 1)])
def test_what_is_left_of_a_file_is_counted_without_reading_it(tmp_path, text, count):
    (tmp_path / "lines").write_bytes(b"skipped\n" + text)
    with (tmp_path / "lines").open("rb", buffering=0) as file:
        file.read(8)
        assert count_left(file.fileno(), b"\n") == count
        assert file.read() == text


def test_what_is_left_in_a_pipe_nobody_knows(tmp_path):
    reading, writing = os.pipe()
    assert count_left(reading, b"\n") is None
    os.close(reading)
    os.close(writing)
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open("rb") as file:
        assert count_left(file.fileno(), b"\n") is None


def test_what_is_shown_of_a_line_is_one_line_of_plain_text():
    assert printable("ä €\n\x1b\u202e\U000e0001") == "ä €\\n\\x1b\\u202e\\U000e0001"
    assert printable("x" * 500) == "x" * 119 + "…"
    assert len(printable("\x1b" * 500, 20)) == 20


@pytest.mark.real_loop("asyncio")
async def test_a_descriptor_that_somebody_made_non_blocking_is_no_trouble():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    errors = []
    outlet = Outlet(writing, errors.append)
    task = asyncio.create_task(outlet.write(b"x" * 300_000))
    got = 0
    while got < 300_000:
        got += len(await asyncio.to_thread(os.read, reading, 65536))
    await task
    os.close(reading)
    await outlet.write(b"more")
    await outlet.write(b"more")
    assert [type(each) for each in errors] == [BrokenPipeError]
    os.close(writing)


async def test_a_report_asks_for_a_pause_when_nobody_takes_its_lines():
    may_write, written = asyncio.Event(), []

    async def write(data):
        await may_write.wait()
        written.append(data)

    report = Report(write)
    report._lines.extend(["{}"] * 999)
    await asyncio.wait_for(report.room(), 1)
    writing = asyncio.create_task(report.keep_writing())
    report._lines.append("{}")
    report._has_room.clear()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(report.room(), 1)
    report._wake.set()
    await asyncio.wait_for(report.room(), 1)
    may_write.set()
    await report.flush()
    writing.cancel()
    assert b"".join(written) == b"{}\n" * 1000
