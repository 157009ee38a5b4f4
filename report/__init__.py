"""What people look at: the page of a report, and what changed between two databases.

This package reads records and asks those below for what they know; it searches nothing.  `compare` pairs the best
records of two sources, `interval` says how sure a ratio of latencies is.  `page` makes one HTML file of the `facts` of
tasks and of a model.
"""
