"""What users call: tune, load, build, replay, and the kernel itself.

`api` takes workloads, programs and targets, or their texts; `kernel` compiles in this process and runs on NumPy
arrays; `replay` has a record built, verified and measured by a worker; `diagnosis` explains it.  It knows all other
packages of the search, and none of them knows it.
"""
