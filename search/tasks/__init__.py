"""Tasks: what is tuned, a program on a device with an interface."""
