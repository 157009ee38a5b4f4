"""OpenCL C source, and what runs it.  Drivers that are Python packages are offered to the loader before pyopencl is."""

from . import drivers

drivers.offer()
drivers.pin()
