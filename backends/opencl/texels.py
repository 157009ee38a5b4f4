"""Reads of images as OpenCL C: whole texels where the lanes are, components of held texels elsewhere."""

from __future__ import annotations

from ...ir import dtypes
from ...ir.arith.linear import as_ramp
from ...ir.arith.simplifier import simplifier_for
from ...ir.expr import Broadcast, Const, Expr, Load, as_int, binary, const
from ..llvm.types import CodegenError
from .access import Accesses
from .images import TEXEL, read_function
from .types import bare

NAMES = "xyzw"


class Texels(Accesses):
    """Writes reads of the buffers whose address space is ``image``."""

    def is_image(self, load: Load) -> bool:
        """Whether a load goes to an image of this kernel.  Raises CodegenError for a view of another type or shape."""
        memory = load.buffer.memory
        if self.spaces.get(memory) != "image":
            return False
        if load.buffer.dtype != self.types[memory]:
            raise CodegenError(
                f"`{load.buffer.name}` views the image `{memory}` of {self.types[memory]} as {load.buffer.dtype}; "
                f"texture memory has one element type"
            )
        if load.buffer.shape != self.shapes[memory]:
            raise CodegenError(
                f"`{load.buffer.name}` views the image `{memory}` of {list(self.shapes[memory])} as "
                f"{list(load.buffer.shape)}; texture memory has one shape"
            )
        return True

    def component(self, load: Load) -> str:
        """One element, converted to the type in which it is computed."""
        row, column = load.indices
        texel = self._texel(load, row, self._quotient(column))
        place = self._remainder(column)
        if place is not None:
            return self._converted(f"{texel}.{NAMES[place]}", load, 1)
        kind = read_function(load.dtype)[1]
        chosen = self.helpers.component(kind)
        return self._converted(f"{chosen}({texel}, (int){self.scalar(binary('%', column, TEXEL))})", load, 1)

    def components(self, load: Load, start: int, count: int) -> str | None:
        """Lanes ``[start, start + count)``, if they are neighbours in whole texels or inside one; else None."""
        row, column = load.indices
        ramp = as_ramp(column)
        if isinstance(row, Broadcast):
            row = row.value
        if dtypes.lanes(row.dtype) > 1 or ramp is None or ramp[1] != const(1):
            return None
        first = binary("+", ramp[0], start)
        place = self._remainder(first)
        if place is None or (place and place + count > TEXEL):
            return None
        if place + count <= TEXEL:
            texel = self._texel(load, row, self._quotient(first))
            part = "" if count == TEXEL else f".{NAMES[place : place + count]}"
            return self._converted(texel + part, load, count)
        quotients = [self._quotient(binary("+", first, k)) for k in range(0, count, TEXEL)]
        texels = ", ".join(self._texel(load, row, q) for q in quotients)
        kind = read_function(dtypes.element(load.dtype))[1][: -len(str(TEXEL))]
        return self._converted(f"(({kind}{count})({texels}))", load, count)

    def _texel(self, load: Load, row: Expr, quotient: Expr) -> str:
        """The texel, held where it is read in any case."""
        function, kind = read_function(dtypes.element(load.dtype))
        x, y = (bare(self.scalar(simplifier_for(self.facts).expr(e))) for e in (quotient, row))
        text = f"{function}({self.pointers[load.buffer.memory]}, (int2)((int)({x}), (int)({y})))"
        return text if self._lazy or self._changes(load) else self.held(text, kind)

    def _converted(self, text: str, load: Load, count: int) -> str:
        """A value as `read_image` gives it in the type of the computation."""
        base = dtypes.element(load.dtype)
        wanted, given = self.value_type(base), read_function(base)[1][: -len(str(TEXEL))]
        if wanted == given:
            return text
        if count == 1:
            return f"convert_{wanted}({text})"
        return f"{self.helpers.built_in(f'convert_{wanted}{{n}}', given, wanted, count)}({text})"

    def _quotient(self, column: Expr) -> Expr:
        quotient: Expr = simplifier_for(self.facts).expr(binary("//", column, TEXEL))
        return quotient

    def _remainder(self, column: Expr) -> int | None:
        """The component that a column is in, if it is the same in every iteration."""
        remainder = simplifier_for(self.facts).expr(binary("%", column, TEXEL))
        return as_int(remainder) if isinstance(remainder, Const) else None
