"""The heads of q that share a head of k are neighbours, so its copies have to be, too."""


def answer(k, heads):
    return k.repeat_interleave(heads // k.shape[1], dim=1)
