"""Programs: what they are, what they mean, and what can be proven of them.

This package holds expressions and statements as immutable values (`expr`, `stmt`), their script form (`script`), the
interpreter that defines what they compute (`interpreter`), the rules that every program keeps (`verify`), layouts and
pad values (`layout`), integer arithmetic and exact sets (`arith`, `affine`), and the passes that need no target
(`passes`).  Three questions have one home each: what holds at a place (`context`), what a statement reads and writes
(`dataflow.accesses`, over the instances that `dataflow.instances` gives), and whether two iterations meet
(`dataflow.meets` quickly, `dataflow.dependence` exactly).

It knows nothing of schedules, of the search, or of how code is generated, and imports no other package; it is the only
one that uses isl.  `target.Target` is plain data here, which `backends` fills in from the machine.
"""
