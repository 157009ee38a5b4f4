"""Whole networks: ONNX in, a network of programs inside, one callable out.

A network is a graph of tensors and of operators, each operator a program of `ir`
(`network.py`).  This package reads models, fuses operators, decides in which layout and
with which padding the operators hand tensors to each other, plans memory, and runs the
whole.  It may use every package below it: `ir`, `space`, `cost_model`, `backends` and
`search`; only `commands` and `cli` know it.
"""
