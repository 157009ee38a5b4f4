"""How a program runs: lowering, code generation, devices, timing and verification.

`lower` turns a program into loops over flat memory (`passes/`), `llvm/` and `opencl/` write and compile its code,
`kernel` loads, binds and runs it; `timing` says how long a call takes, `verification` whether its result is right;
`devices` describes this machine as targets.

It knows programs (`ir`) and nothing of schedules or of the search: every valid program runs, wherever it comes from.
Nothing is run that is not proven to stay inside its buffers.  llvmlite and pyopencl are used here alone.
"""
