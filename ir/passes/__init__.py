"""Passes from program to program that need no target."""
