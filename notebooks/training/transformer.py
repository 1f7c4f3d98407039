"""A transformer as Llama is, of PyTorch's modules, and with this project's ops for all of it.

    model = Transformer(LlamaConfig())       # PyTorch's modules
    loss = model(tokens, targets)            # the mean over all tokens that count
    use_all_kernels(model)                   # from here on our ops, with the same weights

The products, rope, attention and the loss are ours then, beside the norms of model.py. The program
measures a training step:

    python notebooks/training/transformer.py --layers 12

    tokens, targets    [batch, length] int64; a target of -100 does not count
    stream, x, y       [batch, length, width] T: the stream, what is added to it, its norm
    qkv                [batch, length, (heads + 2 * kv_heads) * cols] T: of each token all heads
    cos, sin           [length, cols / 2] T: of the angle of each token and pair
"""

import argparse
import gc
import re
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # importable without an install

from kernels.attention import attention
from kernels.linear_cross_entropy import linear_cross_entropy
from kernels.matmul import matmul
from kernels.rope import rope
from notebooks.training import data, train
from notebooks.training.model import FUSED, AddNorm, Config, use_kernels


@dataclass(frozen=True)
class LlamaConfig(Config):
    """The sizes of a `Transformer`. kv_heads: heads of k and v, each for several of q."""

    norm: str = "rms"
    kv_heads: int = 2


# ---- the model, of PyTorch's modules


class Attention(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        cols = config.width // config.heads
        self.qkv = nn.Linear(config.width, (self.heads + 2 * self.kv_heads) * cols, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, y: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = self.split(self.qkv(y), cos, sin)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def split(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v, each [batch, its heads, length, cols]; q and k are rotated."""
        heads = qkv.unflatten(-1, (self.heads + 2 * self.kv_heads, -1)).transpose(1, 2)
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), 1)
        return rotated(q, cos, sin), rotated(k, cos, sin), v


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Each pair (a, b) of x, half a head apart, becomes (a cos - b sin, b cos + a sin)."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class GatedLayer(nn.Module):
    """down(silu(gate) * up). gate and up are one product; its weight has all rows of gate first."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.width, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, y: Tensor) -> Tensor:
        gate, up = self.gate_up(y).chunk(2, -1)
        return self.down(functional.silu(gate) * up)


class Head(nn.Linear):
    """The mean loss of the tokens that count."""

    def forward(self, y: Tensor, targets: Tensor) -> Tensor:
        logits = functional.linear(y, self.weight).flatten(0, 1)
        return functional.cross_entropy(logits, targets.flatten())


class Layer(nn.Module):
    """Attention and a gated layer, each with what adds it to the stream."""

    def __init__(self, config: LlamaConfig, number: int) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.after_attention = AddNorm(config, 2 * number)
        self.gated = GatedLayer(config)
        self.after_gated = AddNorm(config, 2 * number + 1)

    def forward(self, y: Tensor, stream: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        y, stream = self.after_attention(self.attention(y, cos, sin), stream)
        return self.after_gated(self.gated(y), stream)


class Transformer(nn.Module):
    """The mean loss of the tokens that count.

    Raises ValueError if config.norm is not "rms", if width is no multiple of 2 * heads, or heads
    none of kv_heads.
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        if config.norm != "rms":
            raise ValueError(f"config.norm is {config.norm!r}; wanted is 'rms'")
        if config.width % (2 * config.heads) or config.heads % config.kv_heads:
            raise ValueError(
                f"width, heads and kv_heads are {config.width}, {config.heads} and "
                f"{config.kv_heads}; wanted are multiples of 2 * heads and of kv_heads"
            )
        self.embed = nn.Embedding(config.vocabulary, config.width)
        self.first = nn.RMSNorm(config.width, eps=1e-5)
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config.layers))
        self.head = Head(config.width, config.vocabulary, bias=False)
        for name, each in (("cos", torch.cos), ("sin", torch.sin)):
            self.register_buffer(name, each(angles(config)).float(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                ends_a_layer = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * config.layers) ** (ends_a_layer / 2))

    def forward(self, tokens: Tensor, targets: Tensor, seed: Tensor | None = None) -> Tensor:
        """seed: taken as `Decoder` takes it, and unused: nothing is drawn here."""
        length = tokens.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        stream = self.embed(tokens)
        y = self.first(stream)
        for layer in self.layers:
            y, stream = layer(y, stream, cos, sin)
        return self.head(y, targets)


def angles(config: LlamaConfig) -> Tensor:
    """[length, cols / 2] float64: token t and pair i have the angle t * 10000^(-2 i / cols)."""
    cols = config.width // config.heads
    frequencies = 10000.0 ** (-torch.arange(0, cols, 2, dtype=torch.float64) / cols)
    return torch.arange(config.length, dtype=torch.float64)[:, None] * frequencies


# ---- the same modules over this project's ops: each has another forward, and nothing else


class FusedAttention(Attention):
    def forward(self, y: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        qkv = matmul(y, self.qkv.weight)
        q, k, v = rope(qkv, cos, sin, self.heads, self.kv_heads)
        mixed = attention(q, k, v, causal=True)
        return matmul(mixed.transpose(1, 2).flatten(2), self.out.weight)


class FusedGatedLayer(GatedLayer):
    def forward(self, y: Tensor) -> Tensor:
        return matmul(matmul(y, self.gate_up.weight, act="swiglu"), self.down.weight)


class FusedHead(Head):
    """Of an eighth of the tokens at a time all logits are there, and their gradients after them."""

    def forward(self, y: Tensor, targets: Tensor) -> Tensor:
        # Without a check the host waits for nothing.
        return linear_cross_entropy(y, self.weight, targets, check=False)


ALL_FUSED = FUSED | {Attention: FusedAttention, GatedLayer: FusedGatedLayer, Head: FusedHead}


def use_all_kernels(model: nn.Module) -> nn.Module:
    """Put this project's ops into a `Transformer`, in place; returns it.

    The sums of the stream stay in `AddNorm`. As matmul's residual each would save a read and a
    write of the stream in forward; but then the stream has two gradients, whose sum in backward
    reads two tensors and writes one, where the norm's backward only reads one more.
    """
    return use_kernels(model, ALL_FUSED)


# ---- the program


def kept_by_part(model: nn.Module, tokens: Tensor, targets: Tensor) -> Counter[str]:
    """The bytes that autograd keeps between forward and backward, the weights not counted.

    By the part of the model that first keeps them: "attention", "after_attention", "gated" and
    "after_gated" of all layers, "first", "head", and "" for what is in none of these. Each storage
    counts once and whole, in whichever views it is kept. The gradients that linear_cross_entropy
    has computed by then do not count.
    """
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    kept: dict[int, tuple[str, int]] = {}
    inside = [""]

    def enter(part: str, *_: object) -> None:
        inside.append(part)

    def leave(*_: object) -> None:
        inside.pop()

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept.setdefault(storage.data_ptr(), (inside[-1], storage.nbytes()))
        return tensor

    hooks = []
    for name, module in model.named_modules():
        if part := re.fullmatch(r"(?:layers\.\d+\.)?([a-z_]+)", name):
            hooks.append(module.register_forward_pre_hook(partial(enter, part[1])))
            hooks.append(module.register_forward_hook(leave))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(tokens, targets)
    for hook in hooks:
        hook.remove()
    counted: Counter[str] = Counter()
    for part, size in kept.values():
        counted[part] += size
    del loss
    return counted


def kept_bytes(model: nn.Module, tokens: Tensor, targets: Tensor) -> int:
    """The sum over all parts."""
    return kept_by_part(model, tokens, targets).total()


def made(config: LlamaConfig, how: str, dtype: torch.dtype) -> nn.Module:
    """A model with the same weights for each `how`: "ours", "eager", or either "compiled"."""
    torch.manual_seed(0)
    model = Transformer(config).to(train.jitload.device(), dtype)
    if how.startswith("ours"):
        use_all_kernels(model)
    if how.endswith("compiled"):
        torch.compiler.reset()
        model.compile()
    return model


WAYS = ("ours", "eager", "compiled", "ours compiled")


def main(arguments: list[str] | None = None) -> None:
    setting = train.setting()
    sizes = setting.config
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 12])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    given = parser.parse_args(arguments)
    text = data.words(sizes.vocabulary)
    batches = [data.batch(text, n, setting.batch, sizes.length) for n in range(given.steps)]
    for layers in given.layers:
        config = LlamaConfig(
            *(sizes.vocabulary, sizes.length, sizes.width, sizes.hidden, sizes.heads, layers),
            kv_heads=sizes.heads // 2,
        )
        for how in given.ways:
            model = made(config, how, setting.dtype)
            rate = setting.learning_rate
            curve = train.fit(model, batches, learning_rate=rate, seeded=False)
            figures = f"{1e3 * curve.seconds:.1f} ms a step, {1e-9 * curve.bytes:.2f} GB at most"
            print(f"{layers} layers, {how}: {figures}, loss {curve.losses[-1]:.4f}", flush=True)
            del model
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
