"""Candidates: populations of a design space, drawn, bred and ranked, and the one that the estimate likes best.

It knows design spaces and the cost model.  Nothing here is built or measured, so that any process can do it.
"""
