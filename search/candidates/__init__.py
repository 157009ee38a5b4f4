"""Candidates: populations of a design space, drawn, bred and ranked, and the one that the estimate likes best.

`general` takes a candidate of one shape over to a program of many, and `all_sizes` those that the estimate likes best.

It knows design spaces and the cost model.  Nothing here is built or measured, so that any process can do it.
"""
