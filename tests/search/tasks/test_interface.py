"""Arguments that come from memory: a word of interfaces, and how their tasks are timed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stridesmith import configs
from stridesmith.backends.artifact import InNetwork
from stridesmith.errors import UsageError
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.task import MUCH, Task
from stridesmith.space.workloads import workload

WORK = workload("matmul", m=4, n=8, k=8)
CPU = configs.target("cpu-avx2")


def test_one_word_is_meant_for_inputs() -> None:
    """A result is never packed ahead, whichever word is given to all."""
    assert interface_of(WORK, "streamed") == {"a": "streamed", "b": "streamed", "c": "fixed"}


def test_a_result_does_not_come_from_memory() -> None:
    with pytest.raises(UsageError, match="cannot be streamed"):
        interface_of(WORK, "c=streamed")


def test_a_task_by_itself_is_called_back_to_back() -> None:
    """Unless something is streamed, which then is in no cache at all."""
    assert Task(WORK, CPU, interface_of(WORK)).called is None
    assert Task(WORK, CPU, interface_of(WORK, "b=streamed")).called == InNetwork((), ("b",), MUCH)


def test_a_task_of_a_network_is_called_as_there() -> None:
    """Its inputs were just written, and its weights come back after all others; that is no other task."""
    task = Task(WORK, CPU, interface_of(WORK, "b=streamed"), 1000)
    assert task.called == InNetwork(("a",), ("b",), 1000)
    assert replace(task, network_bytes=None) == task
    assert Task(WORK, CPU, interface_of(WORK, "b=constant"), 0).called == InNetwork(("a",), (), 0)
