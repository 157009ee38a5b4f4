"""Programs: what they are, what they mean, and what can be proven of them.

A module imports those that stand before it in this order, never one behind it::

    caches, collection, deadline, depth      what is remembered, when Python collects, time and depth that calls have
    markup                                   programs and tables as HTML
    node, dtypes, numbers                    values, element types, and how they are stored and converted
    functions, expr, extents                 what calls may name, expressions, extents as they are held
    calls, text, type_check                  arguments of calls of what is not known, text, the types of operations
    isa, target                              what instruction sets and devices have
    statements, arith                        statements, integer arithmetic by rules and intervals
    syntax, tracing                          expressions read from text and from Python functions
    affine, layout                           exact sets, index maps, pad values and layouts
    printer, stmt, ranges, context           programs as text, functions and modules, many shapes, what holds at a place
    skeleton                                 what programs have in common that differ in offsets and floats
    size_ranges                              which numbers the integers of extents may be
    dataflow, analysis                       what statements read and write, whether two iterations meet
    script, interpreter, verify              programs read from text, what they compute, the rules that they keep
    passes, picture                          rewrites that need no target

Three questions have one home each: what holds at a place (`context`), what a statement reads and writes
(`dataflow.accesses`, over the instances that `dataflow.instances` gives), and whether two iterations meet
(`dataflow.meets` quickly, `dataflow.dependence` exactly).

The package knows nothing of schedules, of the search, or of how code is generated, and imports no other package; it is
the only one that uses isl.  `target.Target` is plain data here, which `backends` fills in from the machine.
"""
