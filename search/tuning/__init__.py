"""Tuning: the loop that asks for candidates, has them built and measured, and learns.

`tuner` is a run from its settings to its result, `loop` its rounds, `study` and `sampler` choose candidates, `race`
decides in the end, `events` are what is told meanwhile.  It knows design spaces and the cost model, and workers by
their jobs and replies alone; no generated code runs in its process.  Optuna is used here alone.
"""
