"""The generated design space: what a program is made of, what may be decided, and how a choice is scheduled.

`program` finds the blocks that carry work, `structure` says which of their axes runs in vectors, and `techniques/`
open decisions on them; `rules` makes `Sketch`es of that, and `space.generate` all sketches of a program.  A choice has
one meaning: `candidates` decodes arrays of alternatives for the mask, the cost model, and the scheduler (`plan`,
`apply`), which takes one row.

It knows programs, descriptions of targets, and the primitives of the package around it.  It looks at accesses and
domains, never at names: renaming a program leaves its space as it is.  Nothing here is built, measured or ranked.
"""
