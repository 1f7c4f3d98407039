"""Products of neighbours, of any distance: their average is 0 if they do not know of each other."""


def answer(kept, p):
    deviation = (p * (1 - p)) ** 0.5
    scores = (kept.double() - (1 - p)) / deviation
    sums = [scores.sum() / len(scores) ** 0.5]
    for lag in range(1, 65):
        sums.append((scores[lag:] * scores[:-lag]).sum() / (len(scores) - lag) ** 0.5)
    return max(abs(total) for total in sums) < 5
