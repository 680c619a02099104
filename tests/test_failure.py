"""What is kept of an exception: a description in plain text, and at most an object that holds nothing else."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import FrozenInstanceError, dataclass

import pytest

from ephemerals import EphemeralsError, ErrorInfo
from ephemerals.failure import copy_released, kept_form, qualified_name, released
from ephemerals.testing import Payload


class TwoArguments(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")
        self.first = first
        self.second = second


class Slotted(Exception):
    __slots__ = ("code", "unset")

    def __init__(self, code):
        self.code = code


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Uncopyable(Exception):
    @property
    def __dict__(self):
        raise RuntimeError("no copy")


class NoNotes(Exception):
    def add_note(self, _note):
        raise RuntimeError("no notes")


class NeedsArguments(Exception):
    def __new__(cls, code):
        self = super().__new__(cls, code)
        self.code = code
        return self


class Both(ValueError, OSError):
    pass


class WithDescriptor(Exception):
    @property
    def shown(self):
        return "read-only"


def caught(error, payload=None):
    """Return an exception that was really raised, with a cause and a context."""
    try:
        try:
            raise LookupError(payload)
        except LookupError as cause:
            raise error from cause
    except BaseException as raised:  # noqa: BLE001 - whatever was given
        return raised


def nothing_attached(error):
    return error.__traceback__ is None and error.__cause__ is None and error.__context__ is None


def deep(levels):
    return deep(levels - 1) if levels else [][1]  # noqa: PLE0643 - it is to fail


class TestErrorInfo:
    def test_it_names_the_type_the_place_and_the_message(self):
        info = ErrorInfo.of(caught(ValueError("seven")), "message")
        assert info.type == "ValueError"
        assert info.message == "seven"
        assert info.place.split(":")[:2] == [__name__, "caught"]
        assert int(info.place.split(":")[2]) > 0
        assert info.exception is None

    def test_the_type_of_another_module_is_named_with_the_module(self):
        assert ErrorInfo.of(TwoArguments(1, 2), "message").type == f"{__name__}.TwoArguments"
        assert qualified_name(json.JSONDecodeError) == "json.decoder.JSONDecodeError"

    def test_the_place_is_in_the_users_code_even_if_a_library_raised(self):
        try:
            json.loads("{")
        except ValueError as error:
            info = ErrorInfo.of(error, "message")
        assert info.place.startswith(f"{__name__}:TestErrorInfo.test_the_place_is_in")
        assert info.trace[-1].startswith("json.decoder:")

    def test_without_a_traceback_there_is_no_place(self):
        info = ErrorInfo.of(ValueError("never raised"), "message")
        assert (info.place, info.trace) == ("", ())

    def test_the_innermost_sixteen_places_are_kept(self):
        try:
            deep(40)
        except IndexError as error:
            info = ErrorInfo.of(error, "message")
        assert len(info.trace) == 16
        assert {place.split(":")[1] for place in info.trace} == {"deep"}

    def test_the_message_is_cut_after_200_characters_or_left_out(self):
        error = ValueError("x" * 1000)
        assert ErrorInfo.of(error, "message").message == "x" * 200
        assert not ErrorInfo.of(error, "type").message

    def test_an_exception_that_cannot_be_printed_is_described_all_the_same(self):
        assert ErrorInfo.of(Unprintable(), "message").message == "<message cannot be shown>"

    def test_its_text_reads_like_a_short_traceback(self):
        info = ErrorInfo.of(caught(ValueError("seven")), "message")
        first, last = str(info).splitlines()
        assert first.startswith(f"  at {__name__}:caught:")
        assert last == "ValueError: seven"
        assert str(ErrorInfo.of(caught(ValueError("seven")), "type")).splitlines()[-1] == "ValueError"

    def test_it_is_plain_frozen_text_and_holds_no_object_of_the_failure(self):
        payload = Payload()
        reference = weakref.ref(payload)
        gc.disable()
        try:
            try:
                raise KeyError(payload)
            except KeyError as error:
                info = ErrorInfo.of(error, "message")
            del payload
            assert reference() is None
        finally:
            gc.enable()
        with pytest.raises(FrozenInstanceError):
            info.type = "other"


class TestReleased:
    def test_nothing_is_attached_any_more_and_a_note_names_the_places(self):
        error = caught(ValueError("seven"))
        assert released(error) is error
        assert nothing_attached(error)
        (note,) = error.__notes__
        assert note.startswith(f"raised at {__name__}:caught:")

    def test_releasing_twice_adds_no_second_note(self):
        error = released(caught(ValueError("seven")))
        released(error)
        assert len(error.__notes__) == 1

    def test_what_a_group_contains_is_released_too(self):
        inner = caught(ValueError("one"))
        group = ExceptionGroup("outer", [caught(ExceptionGroup("inner", [inner])), caught(KeyError("two"))])
        released(caught(group))
        assert nothing_attached(group)
        assert all(nothing_attached(each) for each in group.exceptions)
        assert nothing_attached(inner)

    def test_a_missing_attributes_owner_is_let_go(self):
        payload = Payload()
        try:
            payload.missing  # noqa: B018 - it raises
        except AttributeError as raised:
            error = released(raised)
        assert error.obj is None
        assert "missing" in str(error)

    def test_a_frozen_exception_is_released_too(self):
        error = released(caught(Frozen(7)))
        assert nothing_attached(error)
        assert error.code == 7

    def test_an_exception_that_refuses_notes_is_released_without(self):
        assert nothing_attached(released(caught(NoNotes())))


class TestCopy:
    @pytest.mark.parametrize(
        ("error", "attributes"),
        [
            (ValueError("seven", 7), ["args"]),
            (TwoArguments(1, 2), ["args", "first", "second"]),
            (Slotted(404), ["args", "code"]),
            (Frozen(7), ["args", "code"]),
            (NeedsArguments(5), ["args", "code"]),
            (WithDescriptor("x"), ["args", "shown"]),
            (OSError(2, "No such file", "a.txt"), ["args", "errno", "strerror", "filename"]),
            (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), ["args", "object", "start", "reason"]),
            (SystemExit(3), ["args", "code"]),
            (ImportError("no", name="a", path="b"), ["args", "name", "path"]),
            (SyntaxError("bad", ("f.py", 1, 2, "x", 1, 3)), ["args", "filename", "lineno", "text"]),
            (StopIteration(5), ["args", "value"]),
            (json.JSONDecodeError("bad", "{", 1), ["args", "msg", "pos", "lineno"]),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
    )
    def test_a_copy_is_of_the_same_class_and_says_the_same(self, error, attributes):
        raised = caught(error)
        copy = copy_released(raised)
        assert type(copy) is type(error)
        assert copy is not error
        assert str(copy) == str(error)
        assert [getattr(copy, each) for each in attributes] == [getattr(error, each) for each in attributes]
        assert nothing_attached(copy)
        assert raised.__traceback__ is not None
        assert raised.__cause__ is not None

    def test_a_class_that_cannot_be_made_empty_gives_the_nearest_built_in_one(self):
        copy = copy_released(caught(Both("seven")))
        assert type(copy) is ValueError
        assert copy.args == ("seven",)
        assert nothing_attached(copy)

    def test_notes_are_copied_and_not_shared(self):
        error = caught(ValueError("seven"))
        error.add_note("mine")
        copy = copy_released(error)
        assert copy.__notes__[0] == "mine"
        assert copy.__notes__[1].startswith("raised at ")
        assert error.__notes__ == ["mine"]

    @pytest.mark.parametrize("kind", [ExceptionGroup, BaseExceptionGroup])
    def test_a_group_is_copied_with_what_it_contains(self, kind):
        inner = caught(ValueError("one"))
        copy = copy_released(caught(kind("outer", [inner])))
        assert copy.message == "outer"
        assert copy.exceptions[0] is not inner
        assert nothing_attached(copy.exceptions[0])
        assert inner.__traceback__ is not None

    def test_a_missing_attributes_owner_is_let_go_in_the_copy_only(self):
        payload = Payload()
        try:
            payload.missing  # noqa: B018 - it raises
        except AttributeError as error:
            copy = copy_released(error)
            assert error.obj is payload
        assert copy.obj is None

    def test_who_alone_holds_an_exception_keeps_the_very_object(self):
        error = caught(ValueError("seven"))
        assert kept_form(error, is_shared=False) is error
        assert nothing_attached(error)

    @pytest.mark.parametrize("is_shared", [True, False])
    def test_one_that_can_be_neither_copied_nor_released_is_replaced_by_its_description(self, is_shared):
        kept = kept_form(caught(Uncopyable("seven")), is_shared=is_shared)
        assert type(kept) is EphemeralsError
        assert str(kept) == f"{__name__}.Uncopyable: seven"
