"""A small language model of PyTorch's modules, and modules with this project's ops for it.

    model = Decoder(Config(dropout=0.1))     # PyTorch's modules
    losses = model(tokens, targets)          # of each token
    use_kernels(model)                       # from here on our ops, with the same weights

A decoder as GPT-2 and Llama are: attention and a gated layer in turn add to a stream of numbers,
and each reads the norm of it. The end of one and the norm of the next are one module, `AddNorm`,
because they are one kernel.

    tokens, targets    [batch, length] int64; a target of -100 does not count
    stream, x, y       [batch, length, width] T: the stream, what is added to it, its norm
    gate, up           [batch, length, hidden] T
    logits             [batch, length, vocabulary] T
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from kernels.cross_entropy import cross_entropy
from kernels.dropout_layer_norm import dropout_layer_norm
from kernels.layer_norm import layer_norm
from kernels.rms_norm import rms_norm
from kernels.swiglu import swiglu
from reference import factors

NORMS = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


@dataclass(frozen=True)
class Config:
    """The sizes of a `Decoder`.

    norm: "layer" as in GPT-2, or "rms" as in Llama, which is trained without dropout: no op does
    both, and ValueError says so.
    """

    vocabulary: int = 256
    length: int = 32
    width: int = 64
    hidden: int = 192
    heads: int = 4
    layers: int = 2
    norm: str = "layer"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.norm == "rms" and self.dropout:
            raise ValueError(f"dropout is {self.dropout}; beside norm='rms' wanted is 0")


# ---- the model, of PyTorch's modules


class AddNorm(nn.Module):
    """(y, stream): x is added to the stream, after dropout, and y is the norm of the sum.

    number: tells the masks of the model's dropouts apart where they have one seed.
    """

    def __init__(self, config: Config, number: int) -> None:
        super().__init__()
        self.norm = NORMS[config.norm](config.width, eps=1e-5)
        self.dropout = nn.Dropout(config.dropout)
        self.number = number

    def forward(
        self, x: Tensor, stream: Tensor, seed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if seed is None or not (self.training and self.dropout.p):
            stream = stream + self.dropout(x)
        else:  # the kernel's mask, to compare with it; slow
            stream = stream + x * factors(x, self.dropout.p, seed, self.number)
        return self.norm(stream), stream


class SwiGLU(nn.Module):
    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return functional.silu(gate) * up


class TokenLoss(nn.Module):
    """The loss of each token, [batch, length]; 0 where the target is -100."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        losses = functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=-100
        )
        return losses.view_as(targets)


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, y: Tensor) -> Tensor:
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention and a gated layer, each with what adds it to the stream."""

    def __init__(self, config: Config, number: int) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.after_attention = AddNorm(config, 2 * number)
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.activation = SwiGLU()
        self.down = nn.Linear(config.hidden, config.width, bias=False)
        self.after_down = AddNorm(config, 2 * number + 1)

    def forward(
        self, y: Tensor, stream: Tensor, seed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        y, stream = self.after_attention(self.attention(y), stream, seed)
        y = self.down(self.activation(self.gate(y), self.up(y)))
        return self.after_down(y, stream, seed)


class Decoder(nn.Module):
    """The losses of each token. recompute: keep no activations of a layer, compute them twice."""

    def __init__(self, config: Config, recompute: bool = False) -> None:
        super().__init__()
        self.config = config
        self.recompute = recompute
        self.embed = nn.Embedding(config.vocabulary, config.width)  # of the logits, too
        self.place = nn.Embedding(config.length, config.width)
        self.first = NORMS[config.norm](config.width, eps=1e-5)
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config.layers))
        self.loss = TokenLoss()
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                ends_a_layer = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * config.layers) ** (ends_a_layer / 2))

    def forward(self, tokens: Tensor, targets: Tensor, seed: Tensor | None = None) -> Tensor:
        """seed: one int64 beside the tokens, for all masks; without one PyTorch's generator draws.

        The same seed gives the same masks with our ops and without them.
        """
        stream = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        y = self.first(stream)
        for layer in self.layers:
            if self.recompute:
                # With a seed there is no state of a generator to keep and to restore.
                how = {"use_reentrant": False, "preserve_rng_state": seed is None}
                y, stream = checkpoint(layer, y, stream, seed, **how)
            else:
                y, stream = layer(y, stream, seed)
        return self.loss(functional.linear(y, self.embed.weight), targets)


# ---- the same modules over this project's ops: each has another forward, and nothing else


class FusedLayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)


class FusedRMSNorm(nn.RMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        eps = self.eps
        if eps is None:  # PyTorch then takes that of the type in which it computes
            eps = torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps
        return rms_norm(x, self.weight, eps=eps)


class FusedAddNorm(AddNorm):
    def forward(
        self, x: Tensor, stream: Tensor, seed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        norm = self.norm
        if isinstance(norm, nn.RMSNorm):
            return rms_norm(x, norm.weight, stream, norm.eps)
        p = self.dropout.p if self.training else 0.0
        if not p:
            seed = 0  # there is nothing to draw
        how = p, norm.eps, seed, self.number
        return dropout_layer_norm(x, stream, norm.weight, norm.bias, *how)


class FusedSwiGLU(SwiGLU):
    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return swiglu(gate, up)


class FusedTokenLoss(TokenLoss):
    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(logits, targets, "none", check=False)  # the host waits for nothing


FUSED = {
    nn.LayerNorm: FusedLayerNorm,
    nn.RMSNorm: FusedRMSNorm,
    AddNorm: FusedAddNorm,
    SwiGLU: FusedSwiGLU,
    TokenLoss: FusedTokenLoss,
}


def use_kernels(
    model: nn.Module, fused: Mapping[type[nn.Module], type[nn.Module]] = FUSED
) -> nn.Module:
    """Put this project's ops into a model, in place; returns it.

    Every module keeps its weights, its hooks and its name, and only becomes of another class, as
    PyTorch's own `fully_shard` makes it. A norm over several dimensions, or one without a weight or
    a bias, is none of our ops and stays.

    fused: by the class of a module, the one that it becomes.
    """
    for module in model.modules():
        if type(module) in fused and _has_an_op(module):
            module.__class__ = fused[type(module)]
    return model


def _has_an_op(module: nn.Module) -> bool:
    if not isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return True
    weights = (module.weight, module.bias) if isinstance(module, nn.LayerNorm) else (module.weight,)
    return len(module.normalized_shape) == 1 and all(weight is not None for weight in weights)
