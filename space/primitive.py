"""One definition of a primitive gives method, signature, documentation, trace instruction and JSON.

A primitive is a pure function ``(func, **arguments) -> (func, result)``.  The
arguments of its signature are the arguments of the schedule's method and of the
instruction; they are JSON values after `encode`.  Results are names, and numbers
for primitives that draw a decision.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from random import Random
from typing import Any, get_type_hints

from ..ir.affine.guard import Unknown
from ..ir.caches import cached
from ..ir.context import start
from ..ir.layout.index_map import IndexMap
from ..ir.layout.layout import Layout
from ..ir.node import changed, rebuild, remembered
from ..ir.ranges import preconditions
from ..ir.stmt import Block, For, Module, PrimFunc, Stmt, has_calls
from ..ir.verify.bounds import OutOfBounds, check_in_bounds
from ..ir.verify.catalogue import VerifyError
from ..ir.verify.rules import verify
from .arguments import describe, encode_argument, fits, is_variadic
from .errors import ScheduleError
from .opaque import refuse_calls
from .tensorir import without_options

Result = tuple[PrimFunc, Any]
ModuleResult = tuple[Module, str, Any]
REMEMBERED = 1024

Rewrite = Callable[..., Result]
Draw = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Primitive:
    """A named rewrite with its signature (`func` left out).

    With `draw`, the argument ``decision`` is drawn where it is not given:
    ``draw(func, random, **other arguments)``.  Such a primitive leaves the program alone.

    A primitive with `across` acts on a module and the name of the function that is worked on:
    ``across(module, current, **arguments) -> (module, current, result)``.  One with `rank` says how
    many indices its index map takes: ``rank(func, **other arguments)``.
    """

    name: str
    rewrite: Rewrite
    signature: inspect.Signature
    draw: Draw | None = None
    across: Callable[..., ModuleResult] | None = None
    rank: Callable[..., int] | None = None

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The type of each argument; of an element, for an argument that takes several."""
        return get_type_hints(self.rewrite)

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Arguments by name, in JSON values, defaults left out, and TensorIR's options (`tensorir`) too.

        Raises ScheduleError for arguments that do not fit the signature.
        """
        return self._encoded(self._bound(args, kwargs))

    def bind_to(self, func: PrimFunc, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """`bind`, where an index map over ``*indices`` takes as many of them as the primitive has in `func`."""
        given = self._bound(args, kwargs)
        if self.rank is not None and is_variadic(given.get("index_map")):
            rest = self._encoded({name: value for name, value in given.items() if name != "index_map"})
            given["index_map"] = IndexMap.from_func(given["index_map"], self.rank(func, **rest))
        return self._encoded(given)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            named = without_options(self.name, kwargs, self.signature.parameters)
            found = dict(self.signature.bind(*args, **named).arguments)
        except TypeError as error:
            raise ScheduleError("{error}", error=str(error)).at(self.name, {}) from None
        layout = found.get("index_map")
        return found if not isinstance(layout, Layout) else self._with_layout(found, layout)

    def _with_layout(self, given: Mapping[str, Any], layout: Layout) -> dict[str, Any]:
        """Arguments with a layout in the place of an index map, as the map, the pad value and the physical shape."""
        parts = {
            "index_map": layout.index_map, "pad_value": layout.pad_argument, "physical_shape": layout.physical_shape,
        }  # fmt: skip
        for name in ("pad_value", "physical_shape"):
            if name in given or name not in self.signature.parameters:
                problem = ScheduleError("`index_map` is a layout, which has a `{name}` of its own", name=name)
                raise problem.at(self.name, {})
        found = {**given, **parts}
        return {name: found[name] for name in self.signature.parameters if name in found}

    def _encoded(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: encode_argument(name, value) for name, value in arguments.items()}

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise ScheduleError for a missing or unknown argument, or one of another type."""
        parameters = self.signature.parameters
        for name, value in arguments.items():
            if name not in parameters:
                raise ScheduleError("`{name}` has no argument `{unknown}`; it has {known}",
                                    name=self.name, unknown=name, known=", ".join(parameters))  # fmt: skip
            several = parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            hint = self.hints.get(name, Any)
            good = isinstance(value, (list, tuple)) and all(fits(v, hint) for v in value) if several else True
            if not good or not (several or fits(value, hint)):
                raise ScheduleError(
                    "`{argument}` of `{name}` is {kind}, but got {value!r}",
                    argument=name, name=self.name, kind=describe(hint) + " each" * several, value=value,
                )  # fmt: skip
        for name, parameter in parameters.items():
            needed = parameter.default is inspect.Parameter.empty
            if needed and parameter.kind is not inspect.Parameter.VAR_POSITIONAL and name not in arguments:
                raise ScheduleError("`{name}` needs the argument `{missing}`", name=self.name, missing=name)

    def decided(self, func: PrimFunc, arguments: Mapping[str, Any], random: Random) -> dict[str, Any]:
        """The arguments with a decision, drawn where there is none."""
        if self.draw is None or arguments.get("decision") is not None:
            return dict(arguments)
        given = {name: value for name, value in arguments.items() if name != "decision"}
        try:
            self.check(given)
            return {**given, "decision": self.draw(func, random, **given)}
        except ScheduleError as error:
            raise error.at(self.name, given) from None

    def apply(self, func: PrimFunc, arguments: Mapping[str, Any]) -> Result:
        """The rewritten function and the names that the rewrite made.

        Raises ScheduleError, which knows the call, where the arguments do not fit or the primitive refuses.
        """
        self._check_calls(func, None, arguments)
        result: Result = self._call(self.rewrite, (func,), arguments)
        self._check_calls(func, result[0], arguments)
        return result

    def apply_in(self, module: Module, current: str, arguments: Mapping[str, Any]) -> ModuleResult:
        """The rewritten module, the function that is worked on, and what the rewrite made.  Raises ScheduleError.

        Applications are remembered: traces that begin alike share their programs, and a
        trace that replays again proves nothing twice.
        """
        try:
            text = json.dumps(arguments)
        except (TypeError, ValueError):
            return self._apply_in(module, current, arguments)
        return _applied(self, module, current, text)

    def _apply_in(self, module: Module, current: str, arguments: Mapping[str, Any]) -> ModuleResult:
        if self.across is not None:
            self._check_calls(module[current], None, arguments)
            across: ModuleResult = self._call(self.across, (module, current), arguments)
            self._check_all_values(module[current], across[0][across[1]], arguments)
            return across
        func, result = self.apply(module[current], arguments)
        self._check_all_values(module[current], func, arguments)
        return module.with_function(func), current, result

    def _check_calls(self, func: PrimFunc, made: PrimFunc | None, arguments: Mapping[str, Any]) -> None:
        """Raises ScheduleError where `func` has calls of what is not known, and they are in the way of the primitive.

        Of what the primitive `made`, that it is a program.
        """
        if not has_calls(func):
            return
        try:
            refuse_calls(func, self.name, arguments)
            if made is not None:
                verify(made)
        except ScheduleError as error:
            raise error.at(self.name, dict(arguments)) from None
        except VerifyError as error:
            raise ScheduleError("{error}", error=str(error)).at(self.name, dict(arguments)) from None

    def _check_all_values(self, before: PrimFunc, func: PrimFunc, arguments: Mapping[str, Any]) -> None:
        """Raises ScheduleError where the program is not proven to be one for all values of its parameters.

        What each primitive proves of numbers it may leave open of extents that are expressions.  What the program
        assumed of its parameters `before`, on which earlier proofs rest, it still assumes.
        """
        if not before.stated:
            return
        try:
            verify(func)
            if _unmarked(func.body) != _unmarked(before.body):
                check_in_bounds(func)
        except (VerifyError, OutOfBounds) as error:
            made = ScheduleError("for some values of its parameters this makes no program: {error}", error=str(error))
            raise made.at(self.name, dict(arguments)) from None
        here = start(func)
        for cond in preconditions(before):
            if not here.implies(cond):
                made = ScheduleError("this would forget that {cond!r}", cond=cond)
                raise made.at(self.name, dict(arguments)) from None

    def _call(self, rewrite: Callable[..., Any], program: tuple[Any, ...], arguments: Mapping[str, Any]) -> Any:
        try:
            self.check(arguments)
            positional: list[Any] = []
            named: dict[str, Any] = {}
            for name, value in arguments.items():
                if self.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
                    positional.extend(value)
                else:
                    named[name] = value
            return rewrite(*program, *positional, **named)
        except ScheduleError as error:
            raise error.at(self.name, dict(arguments)) from None
        except (ValueError, Unknown) as error:
            raise ScheduleError("{error}", error=str(error)).at(self.name, dict(arguments)) from error


@remembered
def _unmarked(stmt: Stmt) -> Stmt:
    """A statement without what only says how it runs: kinds of loops and annotations, on which no access depends."""
    below: Stmt = rebuild(stmt, lambda child: _unmarked(child) if isinstance(child, Stmt) else child)
    if isinstance(below, For):
        return changed(below, kind="serial", thread="", annotations=())
    return changed(below, annotations=()) if isinstance(below, Block) else below


@cached(REMEMBERED)
def _applied(primitive: Primitive, module: Module, current: str, arguments: str) -> ModuleResult:
    return primitive._apply_in(module, current, json.loads(arguments))


def forget() -> None:
    """Forget applications: for what changes the meaning of a name that arguments may use."""
    _applied.cache_clear()


PRIMITIVES: dict[str, Primitive] = {}


def primitive(rewrite: Rewrite) -> Rewrite:
    """Register a rewrite under its function's name."""
    _register(rewrite, None)
    return rewrite


def sampling(draw: Draw) -> Callable[[Rewrite], Rewrite]:
    """Register a rewrite whose argument ``decision`` is drawn by `draw` where it is not given."""

    def decorate(rewrite: Rewrite) -> Rewrite:
        _register(rewrite, draw)
        return rewrite

    return decorate


def module_primitive(rewrite: Callable[..., ModuleResult]) -> Callable[..., ModuleResult]:
    """Register a rewrite of modules, ``(module, current, **arguments) -> (module, current, result)``."""

    def alone(func: PrimFunc, *args: Any, **kwargs: Any) -> Result:
        module, current, result = rewrite(Module((func,)), func.name, *args, **kwargs)
        if len(module.functions) > 1:
            raise ScheduleError("this makes several functions of one; use a Schedule")
        return module[current], result

    _register(wraps(rewrite)(alone), None)
    PRIMITIVES[rewrite.__name__] = replace(PRIMITIVES[rewrite.__name__], across=rewrite)
    return rewrite


def shared(name: str) -> Callable[[Callable[..., ModuleResult]], Callable[..., ModuleResult]]:
    """Register what the primitive `name` does in a module whose functions share what it changes."""

    def decorate(across: Callable[..., ModuleResult]) -> Callable[..., ModuleResult]:
        PRIMITIVES[name] = replace(PRIMITIVES[name], across=across)
        return across

    return decorate


def index_rank(name: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Register how many indices the index map of the primitive `name` takes."""

    def decorate(rank: Callable[..., int]) -> Callable[..., int]:
        PRIMITIVES[name] = replace(PRIMITIVES[name], rank=rank)
        return rank

    return decorate


def find_primitive(name: Any) -> Primitive:
    """The primitive of this name.  Raises ScheduleError with the nearest name."""
    found = PRIMITIVES.get(name) if isinstance(name, str) else None
    if found is None:
        raise ScheduleError("there is no primitive {name!r}{nearest}", name=name, nearest=_Nearest(name))
    return found


def _register(rewrite: Rewrite, draw: Draw | None) -> None:
    signature = inspect.signature(rewrite)
    rest = [p for name, p in signature.parameters.items() if name not in ("func", "module", "current")]
    made = Primitive(
        rewrite.__name__, rewrite, signature.replace(parameters=rest, return_annotation=inspect.Signature.empty), draw
    )
    PRIMITIVES[rewrite.__name__] = made


class _Nearest:
    """``; did you mean 'split'?``, when somebody reads it."""

    def __init__(self, name: Any) -> None:
        self.name = name

    def __format__(self, spec: str) -> str:
        from ..errors import did_you_mean

        return did_you_mean(str(self.name), PRIMITIVES)
