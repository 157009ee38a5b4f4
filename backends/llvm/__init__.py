"""LLVM IR text, its compilation, and the thread pool of compiled kernels."""
