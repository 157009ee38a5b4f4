"""Networks of free sizes: what they are read at some sizes, generalised, and one callable for all of them.

In the order in which they import each other: `fitting` finds expressions of numbers, `extents` reads those of inputs,
`lifting` makes programs of all shapes, `grouping` groups of operators, `network` is what comes out, `reordering` names
dimensions in another order and `orders` chooses which, `joining` makes one axis of several, `reading` makes the network
of a model and `stored` keeps it, `kernels` compiles its operators and `tuning` searches for them, `model` runs it, and
`api` is what `ss.compile` is made of.
"""
