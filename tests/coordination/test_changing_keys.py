"""A key whose hash changes while its item is there breaks nothing: it counts as what it was when it came in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from ephemerals import KeyedWorkCoordinator, Lane, PriorityWorkCoordinator, WorkCoordinator
from ephemerals.testing import assert_quiet


@dataclass(unsafe_hash=True)
class Session:
    user: str
    hits: int = 0


async def hit(session):
    session.hits += 1
    await asyncio.sleep(1)
    session.hits += 1
    return session.user


@pytest.mark.parametrize("fair", [False, True])
async def test_all_of_them_end_as_their_bodies_do_and_nothing_is_left(fair):
    async with KeyedWorkCoordinator(lambda session: session, hit, fair_scheduling=fair, max_concurrency=2) as work:
        sessions = [Session("ada"), Session("ada"), Session("bob"), Session("eve")]
        operations = [await work.enqueue(each) for each in (*sessions, *sessions)]
        operations[5].cancel()
        outcomes = await asyncio.gather(*operations[:5], *operations[6:])
        assert outcomes == ["ada", "ada", "bob", "eve", "ada", "bob", "eve"]
    assert_quiet(work)


async def test_with_lanes_too():
    lanes = [Lane("hot"), Lane("cold")]
    async with PriorityWorkCoordinator(hit, lanes=lanes, key=lambda session: session) as work:
        ada = Session("ada")
        for lane in ("hot", "cold", "hot"):
            await work.enqueue(ada, lane=lane)
        await work.drain()
        assert work.total_completed == 3
    assert_quiet(work)


async def test_equal_keys_are_one_key_whatever_their_type():
    class Name(str):
        __slots__ = ()

    order = []

    async def note(item):
        order.append(item)
        await asyncio.sleep(1)
        order.append(item)

    async with KeyedWorkCoordinator(lambda item: item, note, max_concurrency=4) as work:
        await work.enqueue("a")
        await work.enqueue(Name("a"))
        assert work.pending_count_for(Name("a")) == 2
        await work.drain()
    assert order == ["a"] * 4
    assert_quiet(work)


def hostile(name):
    class Odd(Exception):
        def __getattribute__(self, attribute):
            if name in {attribute, "all"}:
                raise ValueError(attribute)
            return super().__getattribute__(attribute)

    return Odd


@pytest.mark.parametrize("name", ["all", "__traceback__", "__cause__", "__context__", "__class__", "args", "__notes__"])
async def test_an_exception_that_raises_whatever_is_asked_of_it_fails_its_operation(name):
    async def body(_):
        raise hostile(name)

    async with WorkCoordinator(body, max_concurrency=1) as work:
        operation = await work.enqueue(1)
        await work.join()
        assert operation.status == "failed"
        assert (await work.drain()).failed == 1
    assert_quiet(work)
