"""The transformer over our ops in several processes: how far gradients are from those of one.

torchrun --nproc-per-node=2 tests/helpers/transformer_processes.py
"""

import torch
from torch import distributed

from notebooks.training import data, train
from notebooks.training.transformer import LlamaConfig, Transformer, use_all_kernels

config = LlamaConfig()
with train.joined() as process:
    torch.manual_seed(0)  # the same weights in all processes
    model = use_all_kernels(Transformer(config).to(process.device))
    batch = data.batch(data.words(config.vocabulary), 0, 8, config.length)
    error = train.gradient_error(model, batch, process)
    if process.rank == 0:
        print(f"{process.count} by {distributed.get_backend()}, error {error:.3g}")
    assert error < train.TOGETHER
    del model
