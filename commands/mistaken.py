"""What a word is that stands where a subcommand was expected, and the command that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import PurePath

import click

from ..errors import did_you_mean
from ..files import quoted
from ..invocation import COMMAND

FILES = {
    ".onnx": ("a model", "--model {}", "run {}"),
    ".py": ("a program", "--script {}", "emit --as-written --script {} -o out/"),
    ".toml": ("a list of workloads", "--config {}", ""),
    ".db": ("a database", "best --db {}", "report --db {} -o report.html"),
    ".jsonl": ("a log of records", "import {}", ""),
}
"""What a file with such a name is, and commands that take it."""


def no_command(words: Sequence[str], workload: str | None, shape: Sequence[str], known: Collection[str]) -> str:
    """Why `words`, what is left of a command line, do not begin with a subcommand, and what to write instead.

    `workload` and `shape` are what its options said before.
    """
    from .. import configs
    from ..space.workloads import names

    word = words[0]
    parameters = [each for each in words if "=" in each and not each.startswith("-")]
    if word in names():
        return f"there is no command {word!r}; to tune this workload, run `{_tuned(word, [*shape, *parameters])}`"
    if "=" in word and not word.startswith("-"):
        return (
            f"there is no command {word!r}; all parameters of a workload go into one --shape, with commas between "
            f"them: `{_tuned(workload or 'NAME', [*shape, *parameters])}`"
        )
    if word.startswith("-"):
        return f"{word!r} stands after `--`, where options are words like others; leave the `--` out"
    if word == "tune":
        return f"`tune` is the command itself; leave the second one out: `{COMMAND} --workload conv2d`"
    suffix = PurePath(word).suffix.lower()
    if suffix in FILES:
        what, *options = FILES[suffix]
        asked = " or ".join(f"`{COMMAND} {option.format(quoted(word))}`" for option in options if option)
        return f"there is no command {word!r}; if this is the file of {what}, run {asked}"
    if word in configs.suites():
        return f"there is no command {word!r}, which is a suite: run `{COMMAND} --suite {word}`"
    if word in configs.presets():
        return f"there is no command {word!r}, which is a preset: run `{COMMAND} --workload conv2d --preset {word}`"
    if word.partition(":")[0].lower() in ("cpu", "opencl"):
        return f"there is no command {word!r}, which is a target: run `{COMMAND} --workload conv2d --target {word}`"
    return f"there is no command {word!r}{did_you_mean(word, known)}; there are {', '.join(sorted(known))}"


EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)$")
"""How click says that there are words which no option takes."""
RECORD = re.compile(r"[0-9a-f]{4,16}")


def mistake(error: click.ClickException) -> str:
    """What click says of a command line, with what to write instead."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return error.format_message()
    is_main = context.parent is None
    command = COMMAND if is_main else f"{COMMAND} {context.info_name}"
    if isinstance(error, click.NoSuchOption):
        option = error.option_name
        if context.parent is not None and any(option in each.opts for each in context.parent.command.params):
            return f"`{command}` has no option {option!r}, which is one of the search, `{COMMAND} {option} ...`"
        if option == "--ranges":
            return (
                f"`{command}` has no option {option!r}: a range stands in --shape, as in `--shape m=1..512`, and "
                f"one of a network in --range"
            )
        meant = did_you_mean(option, [each for param in context.command.params for each in param.opts])
        return f"`{command}` has no option {option!r}{meant}; `{command} --help` lists its options"
    if isinstance(error, click.BadOptionUsage):
        param = next((each for each in context.command.params if error.option_name in each.opts), None)
        if param is not None and param.metavar:
            return f"{error.option_name} needs a value: `{error.option_name} {param.metavar}`"
    if isinstance(error, click.MissingParameter):
        needed = [
            f"{param.opts[-1]} {param.metavar}" if isinstance(param, click.Option) else (param.name or "").upper()
            for param in context.command.params
            if param.required
        ]
        return f"`{command}` needs {' and '.join(needed)}: `{' '.join([command, *needed])}`"
    return error.format_message() if is_main else _extra_words(error.format_message(), context)


def _extra_words(message: str, context: click.Context) -> str:
    """A message of click's about words that a command does not take, with the option that was probably meant."""
    command, found = str(context.info_name), EXTRA.search(message)
    if found is None:
        return message
    from ..space.workloads import names

    words = found[1].split()
    word, named = words[0], [each for each in words if each in names()]
    parameters = [each for each in words if "=" in each]
    if named or parameters:
        shape = f" --shape {quoted(','.join(parameters))}" if parameters else ""
        meant = f"--workload {named[0] if named else 'NAME'}{shape}"
    elif PurePath(word).suffix.lower() == ".onnx":
        meant = f"--model {quoted(word)}"
    elif PurePath(word).suffix.lower() == ".py":
        meant = f"--script {quoted(word)}"
    elif PurePath(word).suffix.lower() == ".db":
        meant = f"--db {quoted(word)}"
    elif RECORD.fullmatch(word):
        meant = f"--record {word}"
    else:
        meant = ""
    if not any(meant.partition(" ")[0] in param.opts for param in context.command.params):
        return f"`{command}` takes no word {word!r} by itself; `{COMMAND} {command} --help` lists its options"
    return f"`{command}` takes no word {word!r} by itself; write `{COMMAND} {command} {meant}`"


def _tuned(workload: str, parameters: Sequence[str]) -> str:
    shape = f" --shape {quoted(','.join(parameters))}" if parameters else ""
    return f"{COMMAND} --workload {workload}{shape}"
