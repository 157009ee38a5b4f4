"""Workers: disposable processes that build and measure candidates, and what runs them on one machine or many.

`protocol` has all that passes between a driver and a worker, as values in JSON; `jobs` is what a worker does with
each, `process` the handle of one, `bench` one with deadlines and the host's lock, `executor` many of them.  It knows
nothing of rounds, samplers or models.  Ray is used here alone.
"""
