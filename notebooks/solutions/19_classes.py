"""An online softmax over chunks of classes; each target is in one of them."""

import torch


def answer(y, weight, targets, classes):
    most = y.new_full((len(y),), -torch.inf)
    total, wanted = torch.zeros_like(most), torch.zeros_like(most)
    for first in range(0, len(weight), classes):
        logits = y @ weight[first : first + classes].T
        larger = torch.maximum(most, logits.amax(1))
        total = total * (most - larger).exp() + (logits - larger[:, None]).exp().sum(1)
        most = larger
        at = targets - first
        inside = (at >= 0) & (at < logits.shape[1])
        its = logits.gather(1, at.clamp(0, logits.shape[1] - 1)[:, None]).squeeze(1)
        wanted = torch.where(inside, its, wanted)
    return most + total.log() - wanted
