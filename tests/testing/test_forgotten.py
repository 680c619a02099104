"""assert_forgotten finds every way in which an item can stay alive, and says which."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time

import pytest

from ephemerals.testing import Payload, assert_forgotten, assert_forgotten_sync, referrers_of, run

variable = contextvars.ContextVar("variable")


class Node:
    """A plain object that refers to something."""

    def __init__(self, child=None):
        self.child = child


class Slotted:
    __slots__ = ("child", "empty")

    def __init__(self, child):
        self.child = child


def leak_report(keep):
    """Return what the assertion says when the list that is passed to `keep` holds on to the item."""
    kept = []
    with pytest.raises(AssertionError, match="not forgotten") as caught:
        assert_forgotten_sync(lambda item: keep(kept, item))
    kept.clear()
    return str(caught.value)


class TestForgotten:
    def test_a_used_item_is_forgotten(self):
        async def main():
            async def use(item):
                await asyncio.sleep(1)
                return item.secret

            await assert_forgotten(use)

        run(main())
        assert_forgotten_sync(lambda item: item.secret)

    def test_any_weakly_referenceable_item_will_do(self):
        assert_forgotten_sync(lambda item: item.child, factory=Node)
        with pytest.raises(TypeError):
            assert_forgotten_sync(lambda item: item, factory=object)

    def test_what_is_returned_is_kept_until_the_check(self):
        async def use(item):
            return Node(item)

        with pytest.raises(AssertionError, match=r"Node object, attribute child(.|\n)*variable kept"):
            run(assert_forgotten(use))
        with pytest.raises(AssertionError, match="attribute child"):
            assert_forgotten_sync(Node)

    def test_the_collector_is_off_meanwhile_and_on_again_afterwards(self):
        assert gc.isenabled()

        async def use(item):
            assert not gc.isenabled()
            raise LookupError

        with pytest.raises(LookupError):
            run(assert_forgotten(use))
        assert gc.isenabled()
        gc.disable()
        try:
            assert_forgotten_sync(lambda item: None)
            assert not gc.isenabled()
        finally:
            gc.enable()

    def test_a_cycle_is_found_unless_the_collector_may_run(self):
        def use(item):
            node = Node(item)
            node.self = node

        with pytest.raises(AssertionError, match="attribute child"):
            assert_forgotten_sync(use)
        assert_forgotten_sync(use, collector=True)

    def test_a_thread_gets_time_to_let_go(self):
        def use(item):
            threading.Thread(target=lambda item: time.sleep(0.05), args=(item,)).start()

        with pytest.raises(AssertionError):
            assert_forgotten_sync(use)
        assert_forgotten_sync(use, within=5)

        async def use_async(item):
            use(item)

        run(assert_forgotten(use_async, within=5))

    def test_work_in_an_executor_is_forgotten_at_the_latest_soon(self):
        async def use(item):
            await asyncio.to_thread(lambda item: item.secret, item)

        run(assert_forgotten(use, within=5))

    def test_a_payload_can_be_searched_for_in_text(self):
        one, two = Payload(), Payload()
        assert one.secret != two.secret
        assert one.secret in repr(one)


class TestReport:
    def test_contents_never_appear(self):
        report = leak_report(lambda kept, item: kept.append({item.secret: item, item: 1}))
        assert "secret-" not in report
        assert "value of a key of type str" in report

    def test_an_attribute_is_named(self):
        assert "Node object, attribute child" in leak_report(lambda kept, item: kept.append(Node(item)))
        assert "Slotted object, attribute child" in leak_report(lambda kept, item: kept.append(Slotted(item)))

    def test_a_container_is_named_with_the_place(self):
        report = leak_report(lambda kept, item: kept.extend([1, (0, item), {"name": item}, {item}, {item: 1}]))
        assert "tuple of 2, item 1" in report
        assert "dict, value of 'name'" in report
        assert "set object" in report
        assert "dict, as a key" in report
        assert "list of 5, item 1" in report

    def test_a_traceback_is_followed_to_the_exception_and_its_owner(self):
        def keep(kept, item):
            try:
                raise ValueError
            except ValueError as error:
                kept.append(Node(error))

        report = leak_report(keep)
        assert "keep (test_forgotten.py:" in report
        assert "variable item" in report
        assert "traceback through" in report
        assert "exception ValueError, attribute __traceback__" in report
        assert "Node object, attribute child" in report

    def test_a_closure_names_function_and_variable(self):
        report = leak_report(lambda kept, item: kept.append(lambda: item))
        assert "closure variable" in report
        assert "<lambda>, closed over item" in report

    def test_a_bound_method_is_named(self):
        report = leak_report(lambda kept, item: kept.append(item.__repr__))
        assert "Payload.__repr__" in report

    def test_suspended_functions_are_named_with_the_variable(self):
        def generator(item):
            yield item

        async def asynchronous(item):
            yield item

        async def coroutine(item):
            await asyncio.sleep(0)
            return item

        def keep(kept, item):
            kept.extend([generator(item), asynchronous(item)])
            next(kept[0])
            suspended = coroutine(item)
            suspended.send(None)
            kept.append(suspended)

        report = leak_report(keep)
        assert "suspended generator" in report
        assert "suspended async_generator" in report
        assert "suspended coroutine" in report
        assert report.count("variable item") >= 3

    def test_a_task_is_named(self):
        async def main():
            async def hold(item):
                await asyncio.sleep(100)
                return item

            async def use(item):
                tasks.append(asyncio.create_task(hold(item), name="the holder"))
                await asyncio.sleep(0)

            tasks = []
            with pytest.raises(AssertionError, match="Task object 'the holder'"):
                await assert_forgotten(use)
            await tasks.pop()

        run(main())

    def test_a_context_is_found(self):
        def keep(kept, item):
            context = contextvars.copy_context()
            context.run(variable.set, item)
            kept.append(context)

        assert "Context object" in leak_report(keep)

    def test_a_running_thread_is_found(self):
        over = threading.Event()

        def hold(item):
            over.wait()

        def keep(kept, item):
            kept.append(threading.Thread(target=hold, args=(item,), name="the holder"))
            kept[0].start()

        with pytest.raises(AssertionError, match=r"hold \(.*in thread 'the holder': variable item"):
            assert_forgotten_sync(lambda item: keep([], item))
        over.set()

    def test_breadth_and_levels_are_bounded(self):
        item = Payload()
        holders = list(map(Node, [item] * 20))
        report = referrers_of(item, levels=1, breadth=3)
        assert report.count("attribute child") == 3
        assert "more" in report
        assert len(holders) == 20

    def test_nobody_at_all_is_said(self):
        report = referrers_of(Payload())
        assert "nothing that can be seen" in report
