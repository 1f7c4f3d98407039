"""Each part counts as much as its powers do, measured from the largest score of all."""

import math


def answer(parts):
    most = max(largest for largest, _, _ in parts)
    if most == -math.inf:
        return 0.0
    shares = [powers * math.exp(largest - most) for largest, powers, _ in parts]
    means = [mean for _, _, mean in parts]
    return sum(share * mean for share, mean in zip(shares, means, strict=True)) / sum(shares)
