"""Tuning: the loop that asks for candidates, has them built and measured, and learns."""
