"""The invariants hold on every coordinator under random schedules: of callers, bodies, hooks, turns and time.

Invariants 1 to 7 and 9; what is forgotten (8) has tests of its own.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize
from tests.invariants.machine import CoordinatorMachine, Offer, backlogs
from tests.invariants.plans import Plan, keyed_plans, priority_plans, result_plans, work_plans


class WorkMachine(CoordinatorMachine):
    @initialize(plan=work_plans, backlog=backlogs, ends_after=st.integers(0, 30))
    def make(self, plan: Plan, backlog: list[Offer], ends_after: int) -> None:
        self.begin(plan, backlog, ends_after)


class KeyedMachine(CoordinatorMachine):
    @initialize(plan=keyed_plans, backlog=backlogs, ends_after=st.integers(0, 30))
    def make(self, plan: Plan, backlog: list[Offer], ends_after: int) -> None:
        self.begin(plan, backlog, ends_after)


class PriorityMachine(CoordinatorMachine):
    @initialize(plan=priority_plans, backlog=backlogs, ends_after=st.integers(0, 30))
    def make(self, plan: Plan, backlog: list[Offer], ends_after: int) -> None:
        self.begin(plan, backlog, ends_after)


class ResultMachine(CoordinatorMachine):
    @initialize(plan=result_plans, backlog=backlogs, ends_after=st.integers(0, 30))
    def make(self, plan: Plan, backlog: list[Offer], ends_after: int) -> None:
        self.begin(plan, backlog, ends_after)


def _case_of(machine: type[CoordinatorMachine]) -> Any:
    case = machine.TestCase
    case.settings = settings(stateful_step_count=40)
    return case


TestWork = _case_of(WorkMachine)
TestKeyed = _case_of(KeyedMachine)
TestPriority = _case_of(PriorityMachine)
TestResult = _case_of(ResultMachine)
