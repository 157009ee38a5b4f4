"""How a program may change: primitives, traces of them, workloads, and the design space of a program.

A primitive (`primitives/`) is a function from program to program with numbered conditions under which it refuses;
`Schedule` applies them and records a `Trace`, which replays.  `workloads/` are named programs with independent
references, `design/` enumerates what may be chosen for a program and schedules one choice.

It knows programs (`ir`) and descriptions of targets, and imports no other package: it neither compiles, nor measures,
nor ranks.  Whatever is true of programs without a schedule belongs to `ir`.
"""
