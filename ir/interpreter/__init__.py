"""The definition of the language: programs run on NumPy, with a state for every element."""
