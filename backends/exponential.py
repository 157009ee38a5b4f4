"""What ``e**x`` of float32 is computed from, wherever code for it is written.

    e**x = 2**n e**r,    n the integer nearest to x / ln 2,    r = x - n ln 2 = x - n LN2_HIGH - n LN2_LOW

Adding `ROUND` to x / ln 2 rounds it to n, which the low bits of the sum hold; with 127 more they are the exponent of
2**n.  Below `LEAST` the result is 0.  With `COEFFICIENTS`, ``e**r = 1 + r + r**2 (C[0] + C[1] r + ..)`` has an error
below a tenth of 2**-24 up to ln 2 / 2; they minimise the larger of this and a third of the error from there to ln 2,
which r has at the largest results only.
"""

COEFFICIENTS = (0.500001847743988, 0.1666673868894577, 0.04162650555372238, 0.008345965296030045, 0.0015932009555399418)
LEAST = -87.7
"""Nearer to -127 ln 2 than to -126 ln 2: from here on the result is 0."""
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
"""Their sum is ln 2; the first has 9 bits."""
ROUND = 12582912.0
"""1.5 * 2**23."""
