"""`ephemerals run`, the real program: what goes in, what comes out, and the exit code."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.cli.program import PROGRAM, Gate, entries, environment, eventually, feed, is_running, run, seq, started

import ephemerals


def test_one_of_two_hundred_fails_and_is_named(tmp_path):
    ended = run(
        *("-j", 8, "--report", tmp_path / "report", "--", "sh", "-c", "sleep 0.01; test {} != 77"), stdin=seq(200)
    )
    assert ended.returncode == 1
    assert ended.stdout == b""
    failure, summary = ended.stderr.decode().splitlines()
    assert failure == "ephemerals: line 77 failed (exit code 1): 77"
    assert summary.startswith("ephemerals: 200 items in ")
    assert summary.endswith(": 199 done, 1 failed (line 77)")
    report = entries(tmp_path / "report")
    assert len(report) == 200
    assert sorted(each["line"] for each in report) == list(range(1, 201))
    (failed,) = [each for each in report if each["status"] != "completed"]
    assert {name: failed[name] for name in ("line", "item", "exit_code", "status", "error", "attempt", "key")} == {
        "line": 77,
        "item": "77",
        "exit_code": 1,
        "status": "failed",
        "error": "exit code 1",
        "attempt": 1,
        "key": None,
    }


def test_all_done_is_0():
    ended = run("echo", "<{}>", "again", "{}", stdin=b"a b\nlast without end")
    assert ended.returncode == 0
    assert sorted(ended.stdout.splitlines()) == [b"<a b> again a b", b"<last without end> again last without end"]
    assert b"2 items" in ended.stderr


def test_without_a_place_for_it_the_line_is_the_last_argument():
    assert run("-j", 1, "echo", "-", stdin=b"a  b\n\nc\n").stdout == b"- a  b\n- \n- c\n"


def test_without_a_command_each_line_is_one():
    ended = run("-j", 1, stdin=b"echo 'a b'\n\n   \necho $HOME > x\n")
    assert (ended.returncode, ended.stdout) == (0, b"a b\n$HOME > x\n")
    assert b"2 items" in ended.stderr
    assert run("--shell", stdin=b"echo a b | tr a-z A-Z\n").stdout == b"A B\n"


def test_a_line_that_is_no_command_fails_by_itself(tmp_path):
    ended = run("-j", 1, "--report", tmp_path / "report", stdin=b'echo "x\necho y\n')
    assert (ended.returncode, ended.stdout) == (1, b"y\n")
    assert b'line 1 failed (not a command: No closing quotation): echo "x\n' in ended.stderr
    assert [each["exit_code"] for each in entries(tmp_path / "report")] == [2, 0]


def test_the_shell_gets_each_line_quoted():
    line = b"a  'b'; echo hacked"
    assert run("--shell", "printf '%s\\n' {} | cat", stdin=line).stdout == line + b"\n"


def test_items_may_end_with_nul():
    assert run("-0", "-j", 1, "echo", stdin=b"a\nb\0c\0").stdout == b"a\nb\nc\n"


def test_lines_may_come_from_a_file(tmp_path):
    (tmp_path / "lines").write_bytes(b"a\nb\n")
    assert run("--from", tmp_path / "lines", "-j", 1, "echo").stdout == b"a\nb\n"
    assert run("-a", "-", "-j", 1, "echo", stdin=b"c\n").stdout == b"c\n"


def test_nothing_to_do_is_done_at_once(tmp_path):
    ended = run("--report", tmp_path / "report", "echo")
    assert (ended.returncode, ended.stdout) == (0, b"")
    assert entries(tmp_path / "report") == []
    assert run("echo", stdin=subprocess.DEVNULL).returncode == 0


def test_bytes_that_are_no_text_go_through_unchanged(tmp_path):
    ended = run("--report", tmp_path / "report", "--", "sh", "-c", 'printf %s "$0"; exit 3', stdin=b"a\xff\xc3\n")
    assert ended.stdout == b"a\xff\xc3"
    assert rb"line 1 failed (exit code 3): a\xff\xc3" in ended.stderr
    (entry,) = entries(tmp_path / "report")
    assert entry["item"].encode("utf-8", "surrogateescape") == b"a\xff\xc3"


def test_a_line_never_acts_on_the_terminal():
    ended = run("false", stdin=b"\x1b]0;gotcha\x07\n")
    assert b"\x1b" not in ended.stderr
    assert rb"\x1b]0;gotcha\x07" in ended.stderr


def test_output_stays_together_and_goes_where_it_belongs():
    script = 'for n in 1 2 3 4 5 6 7 8 9; do echo "$0"; echo "e$0" >&2; sleep 0.002; done'
    ended = run("-j", 4, "-q", "--", "sh", "-c", script, stdin=seq(8))
    for stream, mark in ((ended.stdout, ""), (ended.stderr, "e")):
        lines = stream.decode().splitlines()
        blocks = [lines[start : start + 9] for start in range(0, len(lines), 9)]
        assert sorted(blocks) == [[f"{mark}{number}"] * 9 for number in range(1, 9)]


def test_much_output_goes_through_whole_and_in_one_piece():
    script = "head -c 9000000 /dev/zero | tr '\\0' $0; head -c 3000000 /dev/zero | tr '\\0' $0 >&2"
    ended = run("-q", "-j", 2, "--", "sh", "-c", script, stdin=b"1\n2\n")
    for stream, size in ((ended.stdout, 9_000_000), (ended.stderr, 3_000_000)):
        pieces = [b"1" * size, b"2" * size]
        assert stream in {b"".join(pieces), b"".join(reversed(pieces))}


def test_a_command_gets_no_input_and_no_terminal():
    ended = run(
        "-q", "-j", 1, "--", "sh", "-c", "cat; echo $0; (: < /dev/tty) 2> /dev/null || echo none", stdin=b"a\nb\n"
    )
    assert ended.stdout == b"a\nnone\nb\nnone\n"


def test_lines_of_one_key_run_in_order_and_hold_nobody_up(tmp_path):
    # a1 waits for b1, which comes after a2: so a2 may not take the second slot while it waits for a1.
    script = 'while [ "$0" = "a 1" ] && [ ! -e "b 1" ]; do sleep 0.01; done; echo "$0" >> order; touch "$0"'
    ended = run(
        *("-j", 2, "--key", "1", "--report", "report", "--", "sh", "-c", script),
        stdin=b"a 1\na 2\na 3\nb 1\n",
        cwd=tmp_path,
    )
    assert ended.returncode == 0
    assert (tmp_path / "order").read_text().splitlines() == ["b 1", "a 1", "a 2", "a 3"]
    assert sorted(each["key"] for each in entries(tmp_path / "report")) == ["a", "a", "a", "b"]


def test_so_many_run_at_once_and_no_more(tmp_path):
    gate = Gate(tmp_path)
    with started("-j", 3, *gate.command, stderr=subprocess.DEVNULL) as program:
        feed(program, seq(9), end=True)
        gate.wait_for("1", "2", "3")
        gate.open()
        assert program.wait() == 0
        assert sorted(program.stdout.read().split(b"\n"))[1:] == [b"done %d" % each for each in range(1, 10)]


def test_what_takes_too_long_is_ended_with_everything_it_started(tmp_path):
    script = "echo before; sleep 60 & echo $! > pid; echo $$ > leader; wait"
    ended = run("--timeout", 0.3, "--report", "report", "--", "sh", "-c", script, stdin=b"x\n", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (1, b"before\n")
    assert b"line 1 failed (timed out after 0.3 s): x" in ended.stderr
    assert entries(tmp_path / "report")[0]["exit_code"] == 124
    assert not any(is_running(int((tmp_path / name).read_text())) for name in ("pid", "leader"))


def test_what_does_not_want_to_end_is_killed(tmp_path):
    script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done"
    ended = run("--timeout", 0.3, "--", "sh", "-c", script, stdin=b"x\n", cwd=tmp_path)
    assert ended.returncode == 1
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_a_failing_command_is_tried_again(tmp_path):
    script = 'echo out; echo "try $(wc -l < tries)" >&2; echo >> tries; test $(wc -l < tries) -gt 1'
    (tmp_path / "tries").touch()
    ended = run("--retries", 2, "--report", "report", "--", "sh", "-c", script, stdin=b"x\n", cwd=tmp_path)
    assert ended.returncode == 0
    assert ended.stdout == b"out\n"  # of the last attempt only
    lines = ended.stderr.decode().splitlines()
    assert lines[:3] == [
        "try 0",
        "ephemerals: line 1, attempt 1 of 3 failed (exit code 1), again in 0.5 s: x",
        "try 1",
    ]
    assert [(each["attempt"], each["status"]) for each in entries(tmp_path / "report")] == [(2, "completed")]


def test_the_last_attempt_decides(tmp_path):
    ended = run("--retries", 1, "--report", tmp_path / "report", "false", stdin=b"x\n")
    assert ended.returncode == 1
    assert b"line 1 failed after 2 attempts (exit code 1): x" in ended.stderr
    assert [(each["attempt"], each["status"]) for each in entries(tmp_path / "report")] == [(2, "failed")]


def test_starts_keep_their_distance():
    ended = run("--rate", "20/s", "-j", 8, "--report", "-", "true", stdin=seq(5))
    finished = sorted(each["finished_at"] for each in entries(ended.stdout))
    assert len(finished) == 5
    seconds = float(ended.stderr.decode().partition(" in ")[2].partition(" s")[0])
    assert seconds >= 0.2


def test_the_first_failure_may_end_everything(tmp_path):
    script = 'echo $$ > "pid$0"; case $0 in 1) sleep 60;; 2) while [ ! -e pid1 ]; do sleep 0.01; done; exit 9;; esac'
    ended = run(
        *("-j", 2, "--fail-fast", "--report", "report", "--", "sh", "-c", script), stdin=seq(5000), cwd=tmp_path
    )
    assert ended.returncode == 1
    report = {each["line"]: each for each in entries(tmp_path / "report")}
    assert (report[1]["status"], report[2]["status"], report[2]["exit_code"]) == ("cancelled", "failed", 9)
    assert {each["status"] for line, each in report.items() if line > 2} <= {"cancelled"}
    assert not is_running(int((tmp_path / "pid1").read_text()))


def test_input_without_end_is_read_only_as_needed(tmp_path):
    gate = Gate(tmp_path)
    with started("-j", 2, "--", *gate.command, "{#}") as program:
        os.set_blocking(program.stdin.fileno(), False)
        written, refused = 0, 0

        def is_full():
            nonlocal written, refused
            try:
                written += os.write(program.stdin.fileno(), (b"x" * 99 + b"\n") * 10)
                refused = 0
            except BlockingIOError:
                refused += bool(gate.begun())
            return refused == 50 or written > 1_000_000

        eventually(is_full, pause=0.005)
        assert written < 1_000_000


@pytest.mark.parametrize(
    ("command", "stdin", "code", "reason"),
    [
        (["no-such-command", "{}"], b"x\n", 127, "command not found: no-such-command"),
        (["/etc/passwd"], b"x\n", 126, "cannot run /etc/passwd: Permission denied"),
        (["echo"], b"a\0b\n", 126, "cannot run echo: embedded null byte"),
        (["echo"], b"x" * 3_000_000 + b"\n", 126, "cannot run echo: Argument list too long"),
        (["sh", "-c", "kill -9 $$"], b"x\n", 137, "killed by SIGKILL"),
        (["sh", "-c", "kill -40 $$"], b"x\n", 168, "killed by signal 40"),
        ([], b"''\n", 127, "command not found: "),
    ],
)
def test_why_a_command_failed_is_said(tmp_path, command, stdin, code, reason):
    ended = run("--report", tmp_path / "report", "--", *command, stdin=stdin)
    assert ended.returncode == 1
    assert f"line 1 failed ({reason}): " in ended.stderr.decode()
    (entry,) = entries(tmp_path / "report")
    assert (entry["exit_code"], entry["error"]) == (code, reason)


def test_a_process_left_behind_holds_nothing_up():
    ended = run("sh", "-c", "sleep 60 & echo $!", stdin=b"x\n")
    pid = int(ended.stdout)
    assert is_running(pid)  # it was not asked to end
    os.kill(pid, 9)


def test_a_reader_that_goes_away_ends_it_quietly():
    reading, writing = os.pipe()
    os.close(reading)
    ended = run("echo", stdin=seq(100), capture_output=False, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_full_disk_is_told():
    with Path("/dev/full").open("wb") as full:
        ended = run("echo", stdin=seq(100), capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 1
    assert b"cannot write standard output: No space left on device" in ended.stderr
    ended = run("--report", "/dev/full", "true", stdin=seq(100))
    assert ended.returncode == 1
    assert b"cannot write the report: No space left on device" in ended.stderr


def test_the_report_on_standard_output_is_all_that_is_there():
    ended = run("--report", "-", "echo", stdin=seq(3))
    assert sorted(each["item"] for each in entries(ended.stdout)) == ["1", "2", "3"]
    assert sorted(ended.stderr.splitlines())[:3] == [b"1", b"2", b"3"]


def test_quiet_says_only_what_fails():
    assert run("-q", "true", stdin=b"x\n").stderr == b""
    assert run("-q", "false", stdin=b"x\n").stderr == b"ephemerals: line 1 failed (exit code 1): x\n"


def test_the_summary_names_the_first_failures_only():
    ended = run("-j", 1, "false", stdin=seq(12))
    assert ended.stderr.splitlines()[-1].endswith(
        b"0 done, 12 failed (lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, \xe2\x80\xa6)"
    )


def test_closed_standard_streams_do_no_harm():
    shell = "exec " + " ".join([*PROGRAM, "run", "--from", "/dev/stdin", "echo"])
    for closed in ("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"):
        ended = subprocess.run(["sh", "-c", f"{shell} {closed}"], input=b"", capture_output=True, check=False)
        assert ended.returncode in {0, 2}, ended
        assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("closed", "said"),
    [
        ("1>&-", b"cannot write standard output: Bad file descriptor"),
        ("0<&-", b"cannot read the input: Bad file descriptor"),
    ],
)
def test_a_closed_stream_that_is_needed_is_an_error(closed, said):
    shell = "exec " + " ".join([*PROGRAM, "run", "echo"])
    ended = subprocess.run(["sh", "-c", f"{shell} {closed}"], input=b"a\nb\n", capture_output=True, check=False)
    assert ended.returncode == 1
    assert said in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_a_closed_output_that_is_not_needed_is_no_error():
    shell = "exec " + " ".join([*PROGRAM, "run", "true", "1>&-"])
    ended = subprocess.run(["sh", "-c", shell], input=b"a\n", capture_output=True, check=False)
    assert ended.returncode == 0


def test_more_commands_than_files_are_allowed_at_first():
    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    ended = run("-j", 40, "sleep", "0.2", stdin=b"\n" * 40, preexec_fn=few_files)
    assert b"40 items" in ended.stderr
    assert b"Too many" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-j", "0", "echo"], "0 is not in the range"),
        (["-j", "many", "echo"], "'many' is not a valid integer"),
        (["--key", "(", "echo"], "neither the number of a field nor a regular expression"),
        (["--timeout", "0", "echo"], "not a number of seconds above 0"),
        (["--timeout", "nan", "echo"], "not a number of seconds above 0"),
        (["--timeout", "inf", "echo"], "not a number of seconds above 0"),
        (["--retries", "-1", "echo"], "-1 is not in the range"),
        (["--rate", "fast", "echo"], "'fast' is not a rate such as 10/s"),
        (["--rate", "0/s", "echo"], "'0/s' is not a rate such as 10/s"),
        (["--from", "/no/such", "echo"], "--from /no/such: No such file or directory"),
        (["--from", "/", "echo"], "--from /: Is a directory"),
        (["--report", "/no/such/report", "echo"], "--report /no/such/report: No such file or directory"),
        (["--report", "/", "echo"], "--report /: Is a directory"),
        (["--unknown"], "No such option"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_wrong(arguments, message):
    ended = run(*arguments, stdin=b"x\n")
    assert ended.returncode == 2
    assert message in ended.stderr.decode()
    assert ended.stdout == b""


def test_options_behind_the_command_belong_to_it():
    assert run("echo", "-j", "--help", stdin=b"x\n").stdout == b"-j --help x\n"


def test_it_tells_its_version_and_how_to_use_it():
    def output(*arguments):
        return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=True).stdout

    assert output("--version") == f"ephemerals {version('ephemerals')}\n"
    assert "run" in output("--help")
    shown = output("run", "--help")
    assert "Examples:\n" in shown
    assert "    git ls-files | ephemerals run -j 4 --key '\\.[A-Za-z0-9]+$' -- sha256sum {}\n" in shown


def test_without_the_extra_it_says_how_to_get_it(tmp_path):
    (tmp_path / "ephemerals").symlink_to(next(iter(ephemerals.__path__)), target_is_directory=True)
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from ephemerals.cli import main; main()"
    bare = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert bare.returncode == 1
    assert bare.stderr == "ephemerals: the command line needs an extra: pip install 'ephemerals[cli]'\n"


def test_a_terminal_of_another_encoding_is_no_trouble():
    ended = run("false", stdin="ä\n".encode(), env=environment(PYTHONIOENCODING="ascii"))
    assert ended.stderr.startswith(rb"ephemerals: line 1 failed (exit code 1): \xe4")
