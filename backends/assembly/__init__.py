"""Reading LLVM's assembly: its loops, what the instructions of one do, and what a core's ports allow."""
