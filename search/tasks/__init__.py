"""Tasks: what is tuned, a program on a device with an interface, and how fast the device could run it at best.

It knows programs, workloads and devices, and no other package of the search.
"""
