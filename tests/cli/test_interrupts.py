"""Ctrl-C once lets what runs end, twice cancels it; other ends leave nothing running either."""

from __future__ import annotations

import signal

import pytest
from tests.cli.program import Gate, entries, eventually, feed, is_running, read_until, run, seq, started


def statuses(path):
    return sorted(each["status"] for each in entries(path))


def test_once_drains_what_runs(tmp_path):
    gate, report = Gate(tmp_path), tmp_path / "report"
    with started("-j", 2, "--report", report, *gate.command) as program:
        feed(program, seq(1000))
        gate.wait_for("1", "2")
        program.send_signal(signal.SIGINT)
        read_until(program.stderr, b"finishing the 2 running; interrupt again to cancel them")
        gate.open()
        assert program.wait() == 130  # though the input is still open
        assert sorted(program.stdout.read().splitlines()) == [b"done 1", b"done 2"]
        assert b"interrupted; 4 items in " in program.stderr.read()
    assert gate.begun() == ["1", "2"]
    assert statuses(report) == ["cancelled", "cancelled", "completed", "completed"]


@pytest.mark.parametrize("times", [2, 3])
def test_twice_cancels_and_three_times_does_not_wait(tmp_path, times):
    gate, report = Gate(tmp_path), tmp_path / "report"
    if times == 3:
        gate.command[2] = "trap '' TERM; " + gate.script
    with started("-j", 2, "--report", report, *gate.command) as program:
        feed(program, seq(2))
        gate.wait_for("1", "2")
        program.send_signal(signal.SIGINT)
        read_until(program.stderr, b"finishing the 2 running")
        for _ in range(times - 1):
            program.send_signal(signal.SIGINT)
            if times == 3:
                signal.sigtimedwait([], 0.2)  # so that they do not come as one
        assert program.wait() == 130
        assert program.stdout.read() == b""
    assert statuses(report) == ["cancelled", "cancelled"]
    assert not any(map(is_running, gate.pids()))


def test_a_failure_after_an_interrupt_is_final(tmp_path):
    gate = Gate(tmp_path)
    gate.command[2] = gate.script + "; false"
    with started("--retries", 5, *gate.command) as program:
        feed(program, b"x\n")
        gate.wait_for("x")
        program.send_signal(signal.SIGINT)
        read_until(program.stderr, b"finishing the 1 running")
        gate.open()
        assert program.wait() == 130
        said = program.stderr.read()
    assert b"line 1 failed (exit code 1): x" in said
    assert b"again" not in said


def test_no_attempt_begins_after_an_interrupt(tmp_path):
    report = tmp_path / "report"
    with started("--retries", 5, "--report", report, "false") as program:
        feed(program, b"x\n")
        read_until(program.stderr, b"attempt 1 of 6 failed")
        program.send_signal(signal.SIGINT)
        assert program.wait() == 130
        assert b"line 1 failed (exit code 1): x" in program.stderr.read()
    assert [(each["attempt"], each["status"]) for each in entries(report)] == [(1, "failed")]


def test_what_waits_for_its_turn_does_not_begin_after_an_interrupt(tmp_path):
    report = tmp_path / "report"
    with started("-j", 4, "--rate", "1/h", "--report", report, "echo") as program:
        feed(program, seq(4))
        assert program.stdout.readline() == b"1\n"
        program.send_signal(signal.SIGINT)
        assert program.wait() == 130
    assert statuses(report) == ["cancelled", "cancelled", "cancelled", "completed"]


def test_what_waits_for_its_turn_is_not_said_to_run():
    with started("-j", 2, "--rate", "1/h", "echo") as program:
        feed(program, seq(3))
        assert program.stdout.readline() == b"1\n"
        program.send_signal(signal.SIGINT)
        assert program.wait() == 130
        said = program.stderr.read()
    assert b"finishing" not in said
    assert b"2 cancelled" in said


def test_an_interrupt_while_nothing_runs_ends_it_at_once():
    with started("echo") as program:
        feed(program, b"x\n")
        assert program.stdout.readline() == b"x\n"
        program.send_signal(signal.SIGINT)
        assert program.wait() == 130


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_being_told_to_end_ends_the_commands_too(tmp_path, number, code):
    gate = Gate(tmp_path)
    with started("-j", 2, *gate.command) as program:
        feed(program, seq(9))
        gate.wait_for("1", "2")
        program.send_signal(number)
        assert program.wait() == code
    assert not any(map(is_running, gate.pids()))


def test_nohup_is_respected(tmp_path):
    gate = Gate(tmp_path)
    with started(*gate.command, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as program:
        feed(program, seq(1), end=True)
        gate.wait_for("1")
        program.send_signal(signal.SIGHUP)
        gate.open()
        assert program.wait() == 0


def test_a_consumer_that_reads_nothing_does_not_keep_it_from_ending():
    with started("-j", 2, "--timeout", "60", "--", "sh", "-c", "head -c 1000000 /dev/zero") as program:
        feed(program, seq(4), end=True)
        assert len(program.stdout.read(5000)) == 5000
        program.send_signal(signal.SIGINT)
        read_until(program.stderr, b"finishing the")
        program.send_signal(signal.SIGINT)
        eventually(lambda: program.poll() is not None)
        assert program.returncode == 130


def test_a_consumer_that_reads_nothing_does_not_stop_the_clock():
    script = "case $0 in 1) head -c 1000000 /dev/zero;; *) exec sleep 60;; esac"
    with started("-j", 2, "--timeout", "1", "--", "sh", "-c", script, bufsize=0) as program:
        feed(program, b"1\n2\n")
        assert program.stdout.read(5000)  # room for a little more, not for much
        read_until(program.stderr, b"line 2 failed (timed out after 1 s): 2")


def test_an_interrupt_that_comes_before_anything_is_no_traceback():
    ended = run("sh", "-c", "kill -INT $PPID; sleep 0.2", stdin=b"x\n")
    assert ended.returncode == 130
    assert b"Traceback" not in ended.stderr
