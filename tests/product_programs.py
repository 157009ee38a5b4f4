"""Random small programs over the types of quantised networks, as schedules of them look: a seed determines each.

    dots        sums of products of bytes, or of bfloat16, in words that are laid out for a dot product
    taps        sums of products of bytes along a window, of which unrolled steps are put together to words
    bits        products by weights of 4 and 8 bits, packed in bytes or as int4, uint4 and floats of 8 bits, with scales
    rows        rows that are laid side by side, converted or quantised on the way, with a border around them
    finish      sums of int32 that are shifted, scaled, rounded, clipped, and made bytes, bfloat16 or float16

Loops are unrolled, in vectors, with ragged edges that are peeled off or masked; sums are kept in a register tile or in
memory.  Numbers are the ends of their types among others, floats such that every sum is exact.
"""

from __future__ import annotations

import random

from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc

BYTES = ("uint8", "int8")
KINDS = ("dots", "dots", "taps", "bits", "rows", "finish")


class RandomProducts:
    """Draws one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *items: object) -> str:
        return str(self.random.choice(items))

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def program(self) -> PrimFunc:
        """The program, of a kind that is drawn."""
        text = getattr(self, self.pick(*KINDS))()
        func = parse(f"@T.prim_func\n{text}")
        assert isinstance(func, PrimFunc)
        return func

    def lanes(self, extent: int, width: int) -> tuple[str, str]:
        """The head of a loop in vectors, over `extent` elements in two loops, and the condition of its edge."""
        extra = {"peel": True} | ({"mask": True} if self.number(0, 1) else {})
        inner = f"T.vectorized({width}, annotations={extra})" if extent % width else f"T.vectorized({width})"
        return inner, f"jo * {width} + ji < {extent}" if extent % width else ""

    def dots(self) -> str:
        """Rows by words: ``c[i, j] += sum of 4 (or 2) of a[i, k, s] b[k, j, s]``, kept in a tile for some loops."""
        pairs = self.number(0, 3) == 0
        steps, wide = (2, "float32") if pairs else (4, "int32")
        kinds = ("bfloat16", "bfloat16") if pairs else (self.pick(*BYTES), self.pick(*BYTES))
        rows, words, width = self.number(1, 3), self.number(1, 3), int(self.pick(1, 4, 8, 16))
        columns = width * self.number(1, 2) + (self.number(1, width - 1) if width > 1 and self.number(0, 1) else 0)
        vectors, edge = self.lanes(columns, width)
        scope = self.pick("local", "global")
        flat = self.number(0, 1)
        a_shape = f"({rows}, {words * steps})" if flat else f"({rows}, {words}, {steps})"
        a_at = f"i, k * {steps} + s" if flat else "i, k, s"
        ji = "jo" if width == 1 else f"jo * {width} + ji"
        head = f"""def main(a: T.Buffer({a_shape}, "{kinds[0]}"),
         b: T.Buffer(({words}, {columns}, {steps}), "{kinds[1]}"), y: T.Buffer(({rows}, {columns}), "{wide}")):
    c = T.alloc_buffer(({rows}, {columns}), "{wide}", scope="{scope}")
    for i, j in T.grid({rows}, {columns}):
        c[i, j] = T.{wide}({self.number(-3, 3)})
"""
        order = ["i", "k"]
        self.random.shuffle(order)
        loops = {"i": f"T.{self.pick('unroll', 'serial')}({rows})", "k": f"T.{self.pick('unroll', 'serial')}({words})"}
        lines, depth = [], 1
        for name in (*order, "jo"):
            count = -(-columns // width)
            loop = loops.get(name, f"T.{self.pick('unroll', 'serial')}({count})")
            lines.append("    " * depth + f"for {name} in {loop}:")
            depth += 1
        if width > 1:
            lines.append("    " * depth + f"for ji in {vectors}:")
            depth += 1
        if edge:
            lines.append("    " * depth + f"if {edge}:")
            depth += 1
        lines.append("    " * depth + f'for s in T.serial({steps}, annotations={{"dot": True}}):')
        depth += 1
        product = [f'T.Cast("{wide}", a[{a_at}])', f'T.Cast("{wide}", b[k, {ji}, s])']
        self.random.shuffle(product)
        lines.append("    " * depth + f"c[i, {ji}] = c[i, {ji}] + {product[0]} * {product[1]}")
        tail = f"    for i, j in T.grid({rows}, {columns}):\n        y[i, j] = c[i, j]\n"
        return head + "\n".join(lines) + "\n" + tail

    def taps(self) -> str:
        """A window along a row: ``c[j] += x[j + k] w[k]`` with k unrolled, in a register tile."""
        count, width, tiles = self.number(2, 7), int(self.pick(4, 8, 16)), self.number(1, 3)
        kinds, outer = (self.pick(*BYTES), self.pick(*BYTES)), self.number(1, 2)
        size = width * tiles
        step = self.number(1, 2)
        return f"""def main(x: T.Buffer(({outer}, {size * step + count * 2}), "{kinds[0]}"),
         w: T.Buffer(({outer}, {count}), "{kinds[1]}"), y: T.Buffer(({size},), "int32")):
    c = T.alloc_buffer(({size},), "int32", scope="local")
    for j in T.unroll({size}):
        c[j] = {self.number(-2, 2)}
    for p in T.{self.pick("serial", "unroll")}({outer}):
        for k in T.unroll({count}):
            for jo in T.unroll({tiles}):
                for ji in T.vectorized({width}):
                    c[jo * {width} + ji] = c[jo * {width} + ji] + (
                        T.Cast("int32", x[p, (jo * {width} + ji) * {step} + k * {self.number(1, 2)}])
                        * T.Cast("int32", w[p, k]))
    for j in range({size}):
        y[j] = c[j]
"""

    def bits(self) -> str:
        """Rows by packed weights, ``c[j] += a[k] (float(w) - zero) scale``, of blocks."""
        form = self.pick("halves", "int4", "uint4", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
        block, blocks, columns = int(self.pick(4, 8, 16)), self.number(1, 2), int(self.pick(3, 4, 8, 13))
        size = block * blocks
        kind, shape = ("uint8", (columns, size // 2)) if form == "halves" else (form, (columns, size))
        weight = "w[j, k]"
        if form == "halves":
            weight = 'T.bitwise_and(T.shift_right(w[j, k // 2], T.Cast("uint8", k % 2 * 4)), T.uint8(15))'
        loop = self.pick("serial", "unroll", "vectorized")
        around = f"    for k in range({size}):\n        for j in T.{loop}({columns}):\n"
        if loop != "vectorized" and self.number(0, 1):
            around = f"    for j in T.{loop}({columns}):\n        for k in range({size}):\n"
        return f"""def main(a: T.Buffer(({size},), "{self.pick("float32", "float32", "bfloat16")}"),
         w: T.Buffer({shape}, "{kind}"), s: T.Buffer(({blocks}, {columns}), "float32"),
         z: T.Buffer(({blocks}, {columns}), "float32"), y: T.Buffer(({columns},), "float32")):
    for j in range({columns}):
        y[j] = T.float32(0)
{around}            y[j] = y[j] + T.Cast("float32", a[k]) * (
                (T.Cast("float32", {weight}) - z[k // {block}, j]) * s[k // {block}, j])
"""

    def rows(self) -> str:
        """``y[p, w, q] = f(x[p * count + q, w - pad])`` with a number around the image."""
        given, made = self.random.choice((
            ("uint8", "uint8"), ("int8", "int8"), ("bfloat16", "bfloat16"), ("float16", "float16"),
            ("float32", "bfloat16"), ("float32", "uint8"), ("float32", "int8"), ("uint8", "int8"),
        ))  # fmt: skip
        count = 4 if made in BYTES else int(self.pick(2, 2, 4))
        width, pad, groups, lanes = self.number(4, 22), self.number(0, 3), self.number(1, 2), int(self.pick(4, 8, 16))
        value = f"x[g * {count} + q, wo * {lanes} + wi - {pad}]"
        if given == "float32" and made in BYTES:
            low, high = (0, 255) if made == "uint8" else (-128, 127)
            value = f"T.round_to_int32(T.max(T.min({value} * s[0], T.float32({high})), T.float32({low})))"
        value = f'T.Cast("{made}", {value})'
        padded = width + 2 * pad
        if pad:
            inside = f"{pad} <= wo * {lanes} + wi and wo * {lanes} + wi < {width + pad}"
            value = f"T.if_then_else({inside}, {value}, T.{made}({self.number(0, 3)}))"
        outer, edge = -(-padded // lanes), f"if wo * {lanes} + wi < {padded}:" if padded % lanes else "if True:"
        notes = self.pick('annotations={"peel": True}', 'annotations={"peel": True, "mask": True}')
        return f"""def main(x: T.Buffer(({groups * count}, {width}), "{given}"), s: T.Buffer((1,), "float32"),
         y: T.Buffer(({groups}, {padded}, {count}), "{made}")):
    for g in range({groups}):
        for wo in range({outer}):
            for q in T.unroll({count}):
                for wi in T.vectorized({lanes}, {notes}):
                    {edge}
                        y[g, wo * {lanes} + wi, q] = {value}
"""

    def finish(self) -> str:
        """``y[i, j] = clip(round((c[i, j] + shift[i]) factor[i]) + zero)``, or as floats of 16 bits."""
        made = self.pick("uint8", "int8", "bfloat16", "float16", "float8_e4m3fn", "int4", "uint16")
        rows, columns, width = self.number(1, 3), self.number(3, 21), int(self.pick(4, 8, 16))
        vectors, edge = self.lanes(columns, width)
        value = f'T.Cast("float32", c[i, jo * {width} + ji] + shift[i]) * factor[i]'
        if made in (*BYTES, "uint16", "int4"):
            low, high = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int4": (-8, 7)}[made]
            clipped = f"T.max(T.min({value}, T.float32({high}) - T.float32(3)), T.float32({low}) - T.float32(3))"
            value = f"{self.pick('T.round_to_int32', 'T.trunc_to_int32')}({clipped}) + T.int32(3)"
        elif made == "float8_e4m3fn":
            value = f"T.max(T.min({value}, T.float32(448)), T.float32(-448))"
        test = f"if {edge}:" if edge else "if True:"
        return f"""def main(c: T.Buffer(({rows}, {columns}), "int32"), shift: T.Buffer(({rows},), "int32"),
         factor: T.Buffer(({rows},), "float32"), y: T.Buffer(({rows}, {columns}), "{made}")):
    for i in T.{self.pick("serial", "unroll", "parallel")}({rows}):
        for jo in T.{self.pick("serial", "unroll")}({-(-columns // width)}):
            for ji in {vectors}:
                {test}
                    y[i, jo * {width} + ji] = T.Cast("{made}", {value})
"""
