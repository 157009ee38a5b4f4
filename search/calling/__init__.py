"""What users call: tune, load, build, replay, and the kernel itself.

`api` takes workloads, programs and targets, or their texts; `kernel` compiles in this process and runs on NumPy
arrays, and `timed` times it; `replay` has a record built, verified and measured by a worker; `diagnosis` explains it.
`own` records schedules that users have written, for `collection`, the database as users see it.  The package knows all
others of the search, and none of them knows it.
"""
