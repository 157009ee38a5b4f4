"""Legal programs: passes that decide in a lowered program what depends on the instruction set.

What they make are nodes of the language, with a meaning in the interpreter, so that what is left to a code generator is
to write them.  Knows `ir` and what lowering makes.
"""
