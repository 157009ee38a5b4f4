"""Commands as messages show them: what can be pasted acts on the same work, form and database."""

from __future__ import annotations

from stridesmith.search.tasks.command_line import command_line


def test_what_names_the_work_is_kept_and_quoted() -> None:
    options = {"model": "net.onnx", "input": ["x=1x3"], "db": "my runs.db", "seconds": 3.0, "winograd": True}
    assert command_line(options, "show") == "tune show --model net.onnx --input x=1x3 --db 'my runs.db'"


def test_a_model_without_fewer_multiplications_is_another_one() -> None:
    assert command_line({"model": "net.onnx", "winograd": False}) == "tune --model net.onnx --no-winograd"
