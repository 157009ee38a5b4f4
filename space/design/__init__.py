"""The generated design space: what a program is made of, what may be decided, and how a choice is scheduled."""
