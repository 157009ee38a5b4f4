"""LLVM's verbose assembly as blocks and loops.

The comments of LLVM's printer say what a reader of instructions could only guess: the loop that a
block belongs to, how deep that is, and which stores and loads are spills and reloads::

    .LBB1_3:                          # %loop.kh.9                      a block, and its name in the IR
                                      #   Parent Loop BB1_2 Depth=1
                                      # =>  This Inner Loop Header: Depth=2
        vbroadcastss (%rdx,%rcx), %ymm12
        vmovaps %ymm3, 32(%rsp)       # 32-byte Spill
        ...
    # %bb.4:                          #   in Loop: Header=BB1_2 Depth=1

The code generator names the blocks of loops after their variables.  The format is the same for
every target but for the mark of a comment: ``#`` (x86), ``//`` (aarch64), ``##`` and ``;`` (both
on macOS).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_MARKS = ("#", "//", ";")
_COMMENT = re.compile(r"(?:^|\s)(?:##?|//|;)(?=\s|$)")
_BLOCK = re.compile(r"^(?:\.?L(BB\d+_\d+)|%bb\.(\d+)):")
_FUNCTION = re.compile(r'^("[^"]+"|[A-Za-z_$][\w.$@]*):')
_HEADER = re.compile(r"This (?:Inner )?Loop Header: Depth=(\d+)")
_INSIDE = re.compile(r"in Loop: Header=(\S+) Depth=(\d+)")
_PARENT = re.compile(r"Parent Loop (\S+) Depth=(\d+)")
_VARIABLE = re.compile(r"%loop\.(\w*)\.\d+")
_SPILL = re.compile(r"(\d+)-byte (?:Folded )?(Spill|Reload)")


@dataclass(frozen=True)
class Instruction:
    """One line of code; `spilled` and `reloaded` are the bytes that LLVM's comment tells of."""

    mnemonic: str
    operands: tuple[str, ...]
    spilled: int = 0
    reloaded: int = 0

    def text(self) -> str:
        """The line without LLVM's comments, but for what it says of spills."""
        line = f"{self.mnemonic:<12} {', '.join(self.operands)}".rstrip()
        if not self.spilled and not self.reloaded:
            return line
        return f"{line:<56}# {'spill' if self.spilled else 'reload'}"


@dataclass
class Block:
    """Straight-line code; `loop` is the label of the innermost loop's header around it, empty outside of loops.

    `variable` is that of the loop which begins here, empty where the code generator wrote none.
    """

    label: str
    loop: str = ""
    variable: str = ""
    depth: int = 0
    parent: str = ""
    instructions: list[Instruction] = field(default_factory=list)


@dataclass
class Function:
    """A function's blocks in the order of the text."""

    name: str
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Loop:
    """A loop's own blocks, without those of the loops inside; depth 1 is outermost."""

    function: str
    header: str
    variable: str
    depth: int
    blocks: tuple[Block, ...]
    is_innermost: bool

    @property
    def instructions(self) -> list[Instruction]:
        """Everything that an iteration can execute, in the order of the text."""
        return [instruction for block in self.blocks for instruction in block.instructions]


def functions(assembly: str) -> list[Function]:
    """The functions of LLVM's verbose assembly."""
    found: list[Function] = []
    for line in assembly.splitlines():
        code, comment = _split(line)
        label = code or comment
        if block := _BLOCK.match(label):
            _start_block(found, block)
        elif code and (name := _FUNCTION.match(code)) and not code.startswith(".L"):
            found.append(Function(name.group(1).strip('"'), [Block("entry")]))
        elif code and not code.startswith(".") and not code.endswith(":") and found:
            found[-1].blocks[-1].instructions.append(_instruction(code, comment))
        if found and comment:
            _note_loop(found[-1].blocks[-1], comment)
    return found


def _split(line: str) -> tuple[str, str]:
    """Code and comment of a line; ``#APP``, which marks the assembly of others, is a comment."""
    line = line.strip()
    if line.startswith(_MARKS):
        return "", line.lstrip("#/; ")
    code, *comments = _COMMENT.split(line)
    return code.strip(), " ".join(comments).strip()


def _start_block(found: list[Function], match: re.Match[str]) -> None:
    label = match.group(1) or f"bb.{match.group(2)}"
    if not found:
        return
    blocks = found[-1].blocks
    if label == "bb.0" and not blocks[-1].instructions:
        return  # the function's entry, which has a label already
    blocks.append(Block(label))


def _note_loop(block: Block, comment: str) -> None:
    if variable := _VARIABLE.search(comment):
        block.variable = variable.group(1)
    if inside := _INSIDE.search(comment):
        block.loop, block.depth = inside.group(1), int(inside.group(2))
    elif header := _HEADER.search(comment):
        block.loop, block.depth = block.label, int(header.group(1))
    elif parent := _PARENT.search(comment):
        block.parent = parent.group(1)


def _instruction(code: str, comment: str) -> Instruction:
    mnemonic, _, rest = code.partition("\t") if "\t" in code else code.partition(" ")
    spill = _SPILL.search(comment)
    nbytes = int(spill.group(1)) if spill else 0
    is_spill = bool(spill) and spill is not None and spill.group(2) == "Spill"
    operands = tuple(_operands(rest))
    return Instruction(mnemonic, operands, nbytes if is_spill else 0, 0 if is_spill else nbytes)


def _operands(text: str) -> Iterator[str]:
    """Operands between commas that stand in no bracket."""
    depth, start = 0, 0
    for place, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and not depth:
            yield text[start:place].strip()
            start = place + 1
    if text[start:].strip():
        yield text[start:].strip()


def loops(function: Function) -> list[Loop]:
    """The loops of a function in the order of their headers."""
    headers = [block for block in function.blocks if block.loop and block.loop == block.label]
    parents = {header.parent for header in headers if header.parent}
    return [
        Loop(
            function.name,
            header.label,
            header.variable,
            header.depth,
            tuple(block for block in function.blocks if block.loop == header.label),
            header.label not in parents,
        )
        for header in headers
    ]
