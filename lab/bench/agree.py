"""Whether rivals compute the same op."""

import torch


def agree(results: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> bool:
    """Whether two implementations compute the same op: on average within a quarter.

    This is no judgement of error, which the tests make; it detects rivals that compute another op.
    Single elements may differ altogether: where a relu's input rounds to 0, so does its gradient.
    """
    return len(results) == len(expected) and all(
        one.shape == other.shape
        and bool(
            (one.float() - other.float()).abs().mean() <= 0.25 * other.float().abs().mean() + 1e-6
        )
        for one, other in zip(results, expected, strict=True)
    )
