"""Read by mypy and pyright, never run: the types that users of for_each, map_each and Background see."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from ephemerals import (
    Background,
    Call,
    EphemeralOptions,
    MappedResults,
    Operation,
    Report,
    for_each,
    map_each,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def measure(path: str) -> int:
    """Be an async body."""
    return len(path)


async def measure_and_tell(path: str, operation: Operation[int]) -> int:
    """Be an async body that takes its operation."""
    operation.emit("file.measured")
    return len(path)


def measure_plainly(path: str) -> int:
    """Be a plain body."""
    return len(path)


async def paths() -> AsyncIterator[str]:
    """Be an async source."""
    yield "a"


async def everything() -> None:
    """Run a body over a collection."""
    assert_type(await for_each(["a"], measure), Report)
    await for_each(paths(), measure_and_tell, errors="collect", max_concurrency=8)
    await for_each(("a", "b"), measure_plainly, key=len, progress=True, options=EphemeralOptions())
    await for_each(["a"], print, key="__class__", errors="stop")


async def results() -> None:
    """Iterate over results."""
    async with map_each(["a"], measure, ordered=True) as lengths:
        assert_type(lengths, MappedResults[int])
        async for length in lengths:
            assert_type(length, int)
    async with map_each(paths(), measure_and_tell, errors="skip", max_pending=5) as lengths:
        assert_type([length async for length in lengths], list[int])
    async with map_each(["a"], measure_plainly, key=len) as lengths:
        assert_type(await anext(lengths), int)


background = Background(max_concurrency=4)


@background.task
async def mail(address: str, *, text: str = "") -> bool:
    """Be declared without options."""
    return bool(address and text)


@background.task(timeout=30, key="__class__")
async def post(address: str) -> bytes:
    """Be declared with options."""
    return address.encode()


@background.task(key=lambda number: number % 2)
def plain(number: int) -> float:
    """Be a plain function."""
    return number / 2


async def spawning() -> None:
    """Call functions in the background."""
    assert_type(await background.spawn(measure, "a"), Operation[int])
    assert_type(await background.spawn(measure_plainly, path="a"), Operation[int])
    assert_type(background.try_spawn(measure, "a"), Operation[int] | None)
    assert_type(background.add_task(measure_plainly, "a"), Operation[int])
    assert_type(await (await background.spawn(measure, "a")), int)
    await background.enqueue(Call(measure, "a"), metadata={"kind": "mail"})
    background.add_task(measure, 5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    Call(measure, 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def declared() -> None:
    """Use declared tasks."""
    assert_type(await mail("a", text="b"), bool)
    assert_type(await mail.spawn("a", text="b"), Operation[bool])
    assert_type(post.try_spawn("a"), Operation[bytes] | None)
    assert_type(plain(3), float)
    assert_type(await plain.spawn(number=3), Operation[float])
    await mail.spawn(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
