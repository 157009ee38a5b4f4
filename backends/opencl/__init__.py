"""OpenCL C source, and what runs it."""
