"""What looks promising: features of whole populations of candidates, an estimate of their time, and a learned ranker.

It knows programs (`ir`) and their design spaces (`space`), reads the choices of candidates as arrays, and runs
nothing: no candidate is scheduled, lowered or measured for its rank.  What was measured is given to it as numbers by
`search`, which uses its answers.  xgboost is used here alone.
"""
