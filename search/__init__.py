"""The search: how fast schedules are looked for, and how they are kept and called.

```
tasks    <- records <- workers <- tuning <- calling
what        what       who        the       what users
is tuned    is kept    measures   loop      call
```

Each of these packages knows only those on its left, and all of them know the packages below this one (`ir`, `space`,
`cost_model`, `backends`).  Between a driver and its workers go only the values of `workers.protocol`; records are all
that outlives a run.  Nothing here knows a workload by its name.
"""
