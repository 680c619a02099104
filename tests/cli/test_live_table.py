"""On a terminal a table shows what runs; outputs pass above it, and nothing of it is left at the end."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import termios

from tests.cli.program import Gate, environment, feed, run, seq, started
from tests.cli.terminal import terminal

TERM = environment(TERM="xterm")


def has(*texts):
    return lambda seen: all(any(text in line for line in seen.screen()) for text in texts)


def ended(program):
    return lambda _: program.poll() is not None


def test_it_shows_what_runs_and_how_far_it_is(tmp_path):
    gate = Gate(tmp_path)
    (tmp_path / "lines").write_bytes(seq(5))
    with (
        terminal() as shown,
        started(
            *("-j", 2, "--key", ".$", "--from", tmp_path / "lines"),
            *gate.command,
            stdout=shown.writing,
            stderr=shown.writing,
            env=TERM,
        ) as program,
    ):
        shown.read_until(has("2 running", "5 left"))
        head, *rows, counts = shown.screen()
        assert head.split() == ["age", "line", "key", "item"]
        assert [row.split()[2:] for row in rows] == [["1", "1", "1"], ["2", "2", "2"]]
        assert re.fullmatch(r"2 running · 0 done · 0 failed · 0.0/s · 5 left", counts)
        shown.read_until(lambda seen: re.search(r"0\.[3-9] s +1 ", "\n".join(seen.screen())))  # the age grows
        gate.open()
        shown.read_until(ended(program))
        shown.read_until(has("5 done, 0 failed"))
        *outputs, summary = shown.screen()
        assert sorted(outputs) == [f"done {number}" for number in range(1, 6)]
        assert summary.startswith("ephemerals: 5 items in")
        assert shown.text.rindex("\x1b[?25h") > shown.text.rindex("\x1b[?25l")


def test_output_without_an_end_of_line_and_failures_leave_the_table_in_order(tmp_path):
    gate = Gate(tmp_path)
    script = gate.script + '; printf "no end"; test "$0" != 1'
    with (
        terminal() as shown,
        started("-j", 1, "sh", "-c", script, stdout=shown.writing, stderr=shown.writing, env=TERM) as program,
    ):
        feed(program, seq(2), end=True)
        shown.read_until(has("1 running"))
        gate.open()
        shown.read_until(ended(program))
        shown.read_until(has("1 done, 1 failed"))
        assert shown.screen()[:-1] == [
            "done 1",
            "no end",
            "ephemerals: line 1 failed (exit code 1): 1",
            "done 2",
            "no end",
        ]


def test_more_than_fits_is_counted(tmp_path):
    gate = Gate(tmp_path)
    with (
        terminal(rows=8, columns=40) as shown,
        started(
            *("-j", 10, *gate.command),
            stdout=subprocess.DEVNULL,
            stderr=shown.writing,
            env=TERM | {"COLUMNS": "200", "LINES": "50"},  # as another terminal was
        ) as program,
    ):
        feed(program, b"".join(b"%d %s\n" % (number, b"long " * 40) for number in range(10)))
        shown.read_until(has("10 running", "and 6 more"))
        screen = shown.screen()
        assert len(screen) == 7
        assert max(map(len, screen)) < 40
        program.send_signal(signal.SIGINT)
        shown.read_until(has("finishing"))
        program.send_signal(signal.SIGINT)
        shown.read_until(ended(program))


def test_another_attempt_is_shown(tmp_path):
    with (
        terminal() as shown,
        started("--retries", 9, "false", stdout=subprocess.DEVNULL, stderr=shown.writing, env=TERM) as program,
    ):
        feed(program, b"x\n")
        shown.read_until(has("x  attempt 2, waiting to try again"))


def test_a_dumb_terminal_and_a_quiet_run_have_no_table():
    for arguments, env in ((["-q"], TERM), ([], environment(TERM="dumb"))):
        with terminal() as shown:
            done = run(
                *arguments,
                "true",
                stdin=seq(3),
                env=env,
                capture_output=False,
                stdout=subprocess.DEVNULL,
                stderr=shown.writing,
            )
            assert done.returncode == 0
            if not arguments:
                shown.read_until(has("3 items"))
            assert "\x1b" not in shown.text


def test_without_a_table_too_what_is_said_begins_a_line():
    with terminal() as shown:
        run(
            *("sh", "-c", "printf output; false"),
            stdin=b"x\n",
            env=environment(TERM="dumb"),
            capture_output=False,
            stdout=shown.writing,
            stderr=shown.writing,
        )
        shown.read_until(has("1 item"))
        assert shown.screen()[:2] == ["output", "ephemerals: line 1 failed (exit code 1): x"]


def test_a_typed_interrupt_reaches_the_program_and_not_its_commands(tmp_path):
    gate = Gate(tmp_path)
    gate.command[2] = "(: < /dev/tty) 2> /dev/null && echo has a terminal; " + gate.script
    with terminal() as shown:

        def take_terminal():
            os.setsid()
            fcntl.ioctl(shown.writing, termios.TIOCSCTTY, 0)

        with started(
            *("-j", 2, *gate.command),
            stdout=subprocess.PIPE,
            stderr=shown.writing,
            env=TERM,
            preexec_fn=take_terminal,
        ) as program:
            feed(program, seq(9))
            gate.wait_for("1", "2")
            shown.send(b"\x03")
            shown.read_until(has("finishing the 2 running"))
            gate.open()
            assert program.wait() == 130
            assert sorted(program.stdout.read().splitlines()) == [b"done 1", b"done 2"]


def test_reading_from_a_terminal_says_so():
    with (
        terminal() as typed,
        started("-j", 1, "echo", stdin=typed.writing, env=TERM) as program,
    ):
        assert program.stderr.readline() == b"ephemerals: reading lines from the terminal; Ctrl-D ends them\n"
        typed.send(b"hello\n\x04")
        assert program.stdout.readline() == b"hello\n"
        assert program.wait() == 0
