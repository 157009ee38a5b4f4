"""The command, `stridesmith` or `tune`: options, subcommands, exit codes.

``stridesmith --workload conv2d`` without a subcommand is the main job.  Every error ends
as one paragraph on stderr and the exit code of its class in `errors`; with
``--format json`` stdout ends with an ``error`` event as well.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from .commands.ending import ended, wants_json
from .commands.output import FORMATS, Output
from .errors import UsageError, did_you_mean
from .invocation import COMMAND
from .numerals import whole
from .search.tuning.clock import process_start
from .search.tuning.interruption import heard
from .version import __version__

STARTED = process_start()
Command = TypeVar("Command", bound=Callable[..., Any])

EXAMPLES = f"""\b
Examples:
  {COMMAND} --workload conv2d --target cpu --trials 64
  {COMMAND} --workload conv2d --shape ci=17,h=31,w=33,co=29 --seconds 120
  {COMMAND} --workload matmul --shape m=127,n=129,k=131 --interface b=constant
  {COMMAND} --script mine.py --target opencl
  {COMMAND} --suite ragged --trials 64
  {COMMAND} --model net.onnx --input x=1x3x320x320 --seconds 600
  {COMMAND} replay --workload conv2d --target cpu
  {COMMAND} show --workload conv2d --target cpu --space
"""


class Single(click.Command):
    """A command that takes each option once."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _refuse_repeated(self, ctx, args)
        return super().parse_args(ctx, args)


class Group(click.Group):
    """The main command, which also suggests the nearest subcommand."""

    command_class = Single

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _refuse_repeated(self, ctx, args)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            from .commands.mistaken import no_command

            shown = [name for name, command in self.commands.items() if not command.hidden]
            raise UsageError(no_command(args, ctx.params.get("workload"), ctx.params.get("shape", ()), shown))
        return super().resolve_command(ctx, args)


def _seconds(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    """A time: seconds, or with a unit, as in 90s, 1.5m, 1m30s, 2h."""
    from .commands.options import duration

    return None if text is None else duration(text)


def _share(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    """A share above 0 and at most 1, as 0.9 or 90%."""
    from .commands.options import share

    return None if text is None else share(text)


def _refuse_repeated(command: click.Command, ctx: click.Context, args: Sequence[str]) -> None:
    """Raise UsageError for two values of what can have one, of which click would silently take the last.

    And for an option that stands where the value of another one should.
    """
    try:
        values, _, given = command.make_parser(ctx).parse_args(args=list(args))
    except click.UsageError as error:
        error.ctx = error.ctx or ctx  # which click's parser leaves out, and `mistake` asks for
        raise
    known = {
        word
        for param in command.params
        if isinstance(param, click.Option)
        for word in (*param.opts, *param.secondary_opts)
    }
    for name, value in values.items():
        for each in value if isinstance(value, list) else [value]:  # a list of what can be given again
            if isinstance(each, str) and each.partition("=")[0] in known:
                param = next(option for option in given if option.name == name)
                word, metavar = _option(param), param.metavar if isinstance(param, click.Option) else None
                raise UsageError(
                    f"{word} needs a value, but `{each}` follows, an option: `{word} {metavar or 'VALUE'}`"
                )
    seen: dict[str | None, click.Option] = {}
    for param in given:
        if not isinstance(param, click.Option) or param.multiple:
            continue
        before = seen.get(param.name)
        if before is param and not param.is_flag:
            raise UsageError(f"{_option(param)} is given twice, and takes one value")
        if before not in (None, param):
            raise UsageError(f"{_option(before)} and {_option(param)} choose one thing in two ways; give one of them")
        seen[param.name] = param


class Count(click.IntRange):
    """A whole number in a range."""

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        written = whole(value) if isinstance(value, str) else value
        if written is not None:
            with contextlib.suppress(click.BadParameter):
                return super().convert(written, param, ctx)
        ends = f"from {self.min} to {self.max}" if self.max is not None else f"of at least {self.min}"
        raise UsageError(f"{_option(param)} takes a whole number {ends}, but got {value!r}")


class Word(click.Choice[str]):
    """One of a few words, in capitals or not."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words, case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            words = [str(choice) for choice in self.choices]
            *others, last = map(repr, words)
            known = f"{', '.join(others)} or {last}" if others else last
            meant = did_you_mean(str(value), words)
            raise UsageError(f"{_option(param)} takes {known}, but got {value!r}{meant}") from None


def _option(param: click.Parameter | None) -> str:
    """How an option is written."""
    return param.opts[-1] if param is not None else "this"


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def apply(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


# Tables of options, a line or two for each.
# fmt: off
work_options = _options(
    click.option("--workload", metavar="NAME", help=f"A workload of the library; `{COMMAND} workloads` lists them."),
    click.option("--shape", multiple=True, metavar="A=1,B=2", help="Parameters that differ from the defaults."),
    click.option("--script", metavar="FILE.py", help="A program of your own in TVMScript; read, never executed."),
    click.option("--name", metavar="FUNC", help="Which function of the script."),
    click.option("--suite", metavar="NAME[,NAME]", help=f"Shipped lists of workloads; `{COMMAND} suites` lists them."),
    click.option("--config", metavar="FILE.toml", help="Your own list of workloads."),
    click.option("--only", metavar="NAME", help="One entry of the suite or config."),
    click.option("--dtype", metavar="TYPE", help="Element type of the workload, float32 by default."),
    click.option("--interface", metavar="A=fixed,B=constant,C=free",
                 help="Who may choose each argument's layout: fixed, constant, streamed or free; one word is for all."),
)
input_option = click.option(
    "--input", multiple=True, metavar="X=1x3x320x320|X=VALUE|X=FILE.npy",
    help="Shape of a model's input that the file leaves open, or its value, a constant then.",
)
range_option = click.option(
    "--range", multiple=True, metavar="H=32..960:32,...",
    help="Of a model, what names among the extents of its inputs may be, as in --input x=1x3xHxW.",
)  # fmt: skip
winograd_option = click.option(
    "--winograd/--no-winograd", default=True,
    help="Whether a model's convolutions may have fewer multiplications (default), or are summed as written.",
)  # fmt: skip
precision_option = click.option(
    "--precision", metavar="TYPE",
    help="What a model's operators hand on and weights are kept in: float32 (default), bfloat16 or float16.",
)  # fmt: skip
fallback_option = click.option(
    "--fallback", metavar="NAME",
    help="What runs a model's operators that have no program here: reference (ONNX's own, default) or onnxruntime.",
)  # fmt: skip
model_option = _options(
    click.option("--model", metavar="FILE.onnx", help="A whole network, instead of a workload."), input_option,
    range_option, winograd_option, precision_option, fallback_option,
)  # fmt: skip
target_options = _options(
    click.option("--target", metavar="TARGET", default="cpu", show_default=True,
                 help="cpu, opencl[:PLATFORM[:DEVICE]] by number or part of a name, or recorded:FILE."),
    click.option("--threads", type=Count(1, 4096), metavar="N",
                 help="Threads of a CPU's kernel; default all that may be used."),
)  # fmt: skip
db_option = click.option("--db", metavar="URL", help="Path or URL; default STRIDESMITH_DB, else the data folder.")
format_option = click.option(
    "--format", "format_", type=Word(FORMATS), help="rich in a terminal, plain without one; json for programs."
)
FILES = ("so", "c", "ll", "asm", "cl", "script", "wheel")
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(cls=Group, invoke_without_command=True, no_args_is_help=True, context_settings=CONTEXT, epilog=EXAMPLES)
@work_options
@model_option
@target_options
@click.option("--trials", type=Count(min=1), metavar="N",
              help="Candidates to build, for each workload; default 256 without any limit.")
@click.option("--seconds", callback=_seconds, metavar="S",
              help="Time limit for each workload, as 90, 90s or 1.5m; with --model of the run, default 600.")
@click.option("--stop-at", callback=_share, metavar="X", help="Stop at this roofline share, as 0.9 or 90%.")
@click.option("--preset", metavar="NAME",
              help="quick (32 trials), standard (256) or thorough (2000, or 97 % of the roofline).")
@click.option("--seed", type=Count(0, 2**63 - 1), metavar="N", help="Seed of the search; default 0.")
@click.option("--sampler", metavar="NAME",
              help="stridesmith (default), or Optuna's random, tpe, qmc, nsgaii, cmaes or gp.")
@click.option("--pin", multiple=True, metavar="DECISION=VALUE ...",
              help="Fix decisions of the search; a value is a label, or #N, its position.")
@click.option("--likely", multiple=True, metavar="NAME=NUMBER:SHARE,...",
              help="Of a range, as m=1..512, the numbers that calls have more often: m=1:0.5,128:0.3.")
@click.option("--from", "from_file", metavar="FILE",
              help="A schedule of your own, as `show --trace` prints one, or a record's id: verified and raced first.")
@click.option("--address", metavar="auto|HOST:PORT", help="Join a Ray cluster; default RAY_ADDRESS, else a local one.")
@click.option("--devices", type=Word(["all"]),
              help="Tune for every device of the target's kind, here or in the cluster: a run for each.")
@click.option("--resume/--fresh", default=True, help="Learn from stored measurements (default), or ignore them.")
@click.option("--trace", type=click.Path(dir_okay=False), metavar="FILE.json",
              help="Write what happened when, for https://ui.perfetto.dev.")
@click.option("--dry-run", is_flag=True, help="Say what would be searched, and build nothing; not with --model.")
@db_option
@format_option
@click.version_option(__version__, prog_name="stridesmith")
@click.pass_context
def tune(ctx: click.Context, /, devices: str | None, format_: str | None, **options: Any) -> None:
    """Find a fast kernel for a tensor program by building and measuring real candidates.

    What is found is kept in a database; the command `replay` builds it again, `show` explains it.
    """
    if ctx.invoked_subcommand is None:
        ctx.exit(_search(options, devices, Output.of(format_), ctx.obj))
    given = [p for p in ctx.params if ctx.get_parameter_source(p) is click.core.ParameterSource.COMMANDLINE]
    if given:
        name, option = ctx.invoked_subcommand, "--" + given[0].rstrip("_").replace("_", "-")
        does = f"`{name}` has no such option; `{COMMAND} {name} --help` lists those that it has"
        if any(option in each.opts for each in tune.commands[name].params):
            does = f"it would not see it there; write `{COMMAND} {name} {option} ...`"
        raise UsageError(f"{option} stands before the command {name!r}: {does}")


def _search(options: dict[str, Any], devices: str | None, output: Output, started: float) -> int:
    from .commands.options import SearchOptions

    asked = SearchOptions(**options)
    if devices:
        from .commands.fleet import run as run_fleet

        return run_fleet(asked, output, started)
    if asked.model and asked.range:
        from .commands.free_models import tune as tune_free

        return tune_free(asked, output, started)
    if asked.model:
        from .commands.models import tune as tune_model

        return tune_model(asked, output, started)
    from .commands.tune import run

    return run(asked, output, started)


@tune.command("run")
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option("--model", metavar="FILE.onnx", help="The network, if not given without a word.")
@click.option("--input", multiple=True, metavar="X=1x3x320x320|X=VALUE|X=FILE.npy",
              help="Shape of an input that the file leaves open, a value that makes it a constant, or the array to run "
              "on; else random ones.")
@range_option
@winograd_option
@precision_option
@fallback_option
@click.option("--data", type=click.Path(dir_okay=False, readable=False), metavar="FILE.npz",
              help="All inputs, by name.")
@click.option("-o", "--out", type=click.Path(), metavar="FOLDER|FILE.npz", help="Where to put the outputs, by name.")
@target_options
@db_option
@format_option
def run_(
    file: str | None, model: str | None, data: str | None, out: str | None, format_: str | None, **options: Any
) -> int:
    """Run a model with the best kernels that the database has for it."""
    from .commands.models import run
    from .search.tasks.command_line import Options

    if bool(file) == bool(model):
        raise UsageError(f"name one model: `{COMMAND} run FILE.onnx`, or `{COMMAND} run --model FILE.onnx`")
    if options["range"]:
        from .commands.free_models import run as run_free

        return run_free(Options(model=model or file, **options), data, out, Output.of(format_))
    return run(Options(model=model or file, **options), data, out, Output.of(format_))


@tune.command()
@work_options
@model_option
@target_options
@click.option("--record", metavar="ID", help="The record to replay, instead of the best of a workload.")
@click.option("--any-device", is_flag=True, help="Replay a record that another device measured.")
@db_option
@format_option
def replay(format_: str | None, **options: Any) -> int:
    """Rebuild the best record, or every one of a model, verify it with fresh data, and measure it again."""
    from .commands.options import RecordOptions

    asked, output = RecordOptions(**options), Output.of(format_)
    if asked.model and asked.range:
        from .commands.free_models import replay as replay_free

        return replay_free(asked, output)
    if asked.model:
        from .commands.models import replay as replay_model

        return replay_model(asked, output)
    from .commands.replay import run

    return run(asked, output)


@tune.command()
@work_options
@model_option
@target_options
@click.option("--record", metavar="ID", help="The record to show, instead of the best of a workload.")
@click.option("--as-written", is_flag=True, help="The program as it is written, measured now, instead of a record.")
@click.option("--space", "view", flag_value="space", help="Sketches, decisions by kind, and the size of the space.")
@click.option("--trace", "view", flag_value="trace", help="The schedule's instructions.")
@click.option("--program", "view", flag_value="program", help="The scheduled program in script form.")
@click.option("--lowered", "view", flag_value="lowered", help="The program as the code generator gets it.")
@click.option("--source", "view", flag_value="source", help="The generated LLVM IR or OpenCL C.")
@click.option("--assembly", "view", flag_value="assembly", help="The machine code, for the CPU.")
@db_option
@format_option
def show(view: str | None, as_written: bool, format_: str | None, **options: Any) -> int:
    """Show what is behind a record, or the design space of a workload.

    Without a view: where the kernel stands on the roofline, the work, the inner loop with its registers
    and spills, and the schedule.  Of a model: where its time goes.
    """
    from .commands.options import RecordOptions

    asked, output = RecordOptions(**options), Output.of(format_)
    if asked.model and asked.range:
        from .commands.free_models import show as show_free

        return show_free(asked, view, as_written, output)
    if asked.model:
        from .commands.models import show as show_model

        return show_model(asked, view, as_written, output)
    from .commands.show import run

    return run(asked, view, as_written, output)


@tune.command()
@work_options
@target_options
@db_option
@format_option
def best(format_: str | None, **options: Any) -> int:
    """List the best record of each workload and device, or of one workload."""
    from .commands.records import best as run
    from .search.tasks.command_line import Options

    return run(Options(**options), Output.of(format_))


@tune.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@db_option
@format_option
def export(file: Path, db: str | None, format_: str | None) -> int:
    """Write every record to FILE as JSON lines."""
    from .commands.records import export as run

    return run(file, db, Output.of(format_))


@tune.command()
@work_options
@model_option
@target_options
@click.option("--record", metavar="ID", help="The record to emit, instead of the best of a workload.")
@click.option("--as-written", is_flag=True, help="With --script: the program as it stands there, without a record.")
@click.option("-o", "path", required=True, metavar="PATH", help="A file, or a folder that is there or ends in a slash.")
@click.option("--format", "format", type=Word(FILES), default="so", show_default=True,
              help="Shared object, C, LLVM IR, assembly, OpenCL with a host program, script, Python wheel.")
@click.option("--isa", metavar="NAME",
              help=f"Another CPU: avx2, avx512 or neon, or a target that `{COMMAND} targets` lists.")
@db_option
def emit(path: str, **options: Any) -> int:
    """Write a tuned kernel or model as files that run where there is neither Python nor stridesmith."""
    from .commands.emit import EmitOptions, run

    return run(path, EmitOptions(**options), Output.of("plain"))


@tune.command()
@work_options
@model_option
@target_options
@click.option("--record", metavar="ID", help="One record, instead of the best of a workload.")
@click.option("-o", "path", required=True, metavar="FILE.html", help="The page; it needs no other file.")
@click.option("--peers", type=click.Path(dir_okay=False), metavar="FILE.jsonl",
              help="What other libraries took, as benchmarks/peers.py writes it, to be marked beside ours.")
@click.option("--limit", type=Count(1, 5000), metavar="N", default=200, show_default=True,
              help="Of more tasks, those that take most time; a page that would pass 2 MB says less of each.")
@db_option
@format_option
def report(format_: str | None, **options: Any) -> int:
    """Write one offline page: searches, decisions, rooflines, code and layouts, of a workload, suite or model.

    Without any of them, of all that the database has.  What is slowest comes first, with why, and what to do.
    """
    from .commands.report import ReportOptions, run

    return run(ReportOptions(**options), Output.of(format_))


@tune.command()
@click.argument("a")
@click.argument("b")
@click.option("--race", is_flag=True,
              help="Build the two kernels of each task again and let them take turns on this machine, some ten seconds "
                   "each: what was stored at different times is not compared then.")
@db_option
@format_option
def compare(a: str, b: str, race: bool, db: str | None, format_: str | None) -> int:
    """Say what changed from A to B: databases, logs of `export`, or runs or records of the database of --db.

    A difference counts where noise does not explain it: intervals hold for all tasks together.
    """
    from .commands.compare import run

    return run(a, b, db, race, Output.of(format_))


@tune.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, readable=False))
@db_option
@format_option
def import_(file: Path, db: str | None, format_: str | None) -> int:
    """Merge the records of FILE into the database; each counts here once it is verified and has won a race here."""
    from .commands.records import import_ as run

    return run(file, db, Output.of(format_))


@tune.command()
@format_option
def targets(format_: str | None) -> int:
    """List the devices of this machine, and the descriptions of others that `show --space` takes."""
    from .commands.listing import targets as run

    return run(Output.of(format_))


@tune.command()
@click.argument("name", required=False)
@format_option
def workloads(name: str | None, format_: str | None) -> int:
    """List the workloads with their parameters and defaults."""
    from .commands.listing import workloads as run

    return run(name, Output.of(format_))


@tune.command()
@click.argument("name", required=False)
@format_option
def suites(name: str | None, format_: str | None) -> int:
    """List the shipped suites, or the workloads of one."""
    from .commands.listing import suites as run

    return run(name, Output.of(format_))


@tune.command("record-space")
@click.option("-o", "file", required=True, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="The recording; FILE.part until it is whole.")
@work_options
@target_options
@click.option("--size", type=Count(16, 100_000), default=2000, show_default=True, metavar="N",
              help="About how many candidates.")
@click.option("--sketches", type=Count(1, 64), default=2, show_default=True, metavar="N",
              help="In how many sketches.")
@click.option("--seed", type=Count(0, 2**63 - 1), default=0, metavar="N", help="Which part of the space.")
@click.option("--pin", multiple=True, metavar="DECISION=VALUE", help="Record only what has these decisions.")
@click.option("--likely", multiple=True, metavar="NAME=NUMBER:SHARE,...",
              help="Of a range, the numbers that calls have more often, as for a search.")
@click.option("--seconds", callback=_seconds, metavar="S",
              help="Stop then; the same command goes on later.")
@format_option
def record_space(file: Path, format_: str | None, **options: Any) -> int:
    """Measure part of a design space into FILE, which `--target recorded:FILE` replays without building anything."""
    from .commands.record_space import SpaceOptions, run

    return run(file, SpaceOptions(**options), Output.of(format_))


@tune.command()
@click.option("--address", metavar="auto|HOST:PORT", help="Check this Ray cluster, node by node, as well.")
@click.option("--fix", is_flag=True, help="Repair what can be: a `tune` that another package has taken.")
@db_option
@format_option
def doctor(address: str | None, fix: bool, db: str | None, format_: str | None) -> int:
    """Check this machine: libraries, devices, folders, database; with --address a cluster."""
    from .commands.doctor import run

    return run(db, address, fix, Output.of(format_))


@tune.command("help", hidden=True)
@click.argument("name", required=False)
@click.pass_context
def help_(ctx: click.Context, name: str | None) -> None:
    """Show the help of the command, or of one of its subcommands."""
    parent = ctx.parent
    assert parent is not None  # the group, through which alone this is called
    command = tune if name is None else tune.get_command(parent, name)
    if command is None:
        known = [each for each in tune.commands if each != "help"]
        raise UsageError(f"there is no command {name!r}{did_you_mean(name or '', known)}; there are {', '.join(known)}")
    inner = parent if name is None else click.Context(command, info_name=name, parent=parent)
    click.echo(command.get_help(inner))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code and never raises.

    The seconds of a run count from the start of the process; from this call where a caller gives the arguments.
    """
    if argv is not None:
        return _main(argv, time.monotonic())
    return _main(sys.argv[1:], STARTED)


def _main(argv: Sequence[str], started: float) -> int:
    args = spread_pins(["--help" if word in ("-help", "-?") else word for word in argv])
    as_json = wants_json(args)
    try:
        with heard():
            code = tune.main(args=args, prog_name=COMMAND, standalone_mode=False, obj=started)
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        from .commands.mistaken import mistake

        return ended(UsageError(mistake(error)), as_json)
    except click.Abort as error:  # click's own word for an interrupt, and for a file that ends too early
        cause = error.__cause__ or error.__context__
        return ended(cause if isinstance(cause, (KeyboardInterrupt, EOFError)) else KeyboardInterrupt(), as_json)
    except BaseException as error:
        return ended(error, as_json)


def spread_pins(args: list[str]) -> list[str]:
    """``--pin a=1 b=2`` -> ``--pin a=1 --pin b=2``."""
    spread: list[str] = []
    pinning = False
    for arg in args:
        if pinning and not arg.startswith("-") and "=" in arg and spread[-1] != "--pin":
            spread.append("--pin")
        elif spread[-1:] != ["--pin"]:
            pinning = arg == "--pin"
        spread.append(arg)
    return spread
