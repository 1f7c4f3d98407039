"""The sizes of public language models, from their published configurations."""

from typing import NamedTuple


class Model(NamedTuple):
    """Sizes in elements.

    hidden: the width of a token. inner: the width of the MLP. cols: the head size.
    gated: whether the MLP's first layer has two products, as in SwiGLU.
    """

    hidden: int
    inner: int
    heads: int
    kv_heads: int
    cols: int
    classes: int
    gated: bool = True

    def weights(self) -> list[tuple[int, int]]:
        """(units, cols) of the layers' products: q, k and v; output; first and last of the MLP."""
        return [
            ((self.heads + 2 * self.kv_heads) * self.cols, self.hidden),
            (self.hidden, self.heads * self.cols),
            (self.inner * (1 + self.gated), self.hidden),
            (self.hidden, self.inner),
        ]


MODELS = {
    "BERT base": Model(768, 3072, 12, 12, 64, 30522, gated=False),
    "GPT-2": Model(768, 3072, 12, 12, 64, 50257, gated=False),
    "GPT-2 XL": Model(1600, 6400, 25, 25, 64, 50257, gated=False),
    "Pythia 2.8B": Model(2560, 10240, 32, 32, 80, 50304, gated=False),
    "Phi-2": Model(2560, 10240, 32, 32, 80, 51200, gated=False),
    "Phi-3 mini": Model(3072, 8192, 32, 32, 96, 32064),
    "Falcon 7B": Model(4544, 18176, 71, 1, 64, 65024, gated=False),
    "StarCoder": Model(6144, 24576, 48, 1, 128, 49152, gated=False),
    "StarCoder2 3B": Model(3072, 12288, 24, 2, 128, 49152, gated=False),
    "SmolLM2 135M": Model(576, 1536, 9, 3, 64, 49152),
    "Llama 2 7B": Model(4096, 11008, 32, 32, 128, 32000),
    "Llama 2 13B": Model(5120, 13824, 40, 40, 128, 32000),
    "Llama 3 8B": Model(4096, 14336, 32, 8, 128, 128256),
    "Llama 3 70B": Model(8192, 28672, 64, 8, 128, 128256),
    "Llama 3.2 1B": Model(2048, 8192, 32, 8, 64, 128256),
    "Llama 3.2 3B": Model(3072, 8192, 24, 8, 128, 128256),
    "Mistral 7B": Model(4096, 14336, 32, 8, 128, 32000),
    "Mistral Nemo": Model(5120, 14336, 32, 8, 128, 131072),
    "Mixtral 8x22B": Model(6144, 16384, 48, 8, 128, 32768),
    "Qwen2.5 0.5B": Model(896, 4864, 14, 2, 64, 151936),
    "Qwen2.5 1.5B": Model(1536, 8960, 12, 2, 128, 151936),
    "Qwen2.5 7B": Model(3584, 18944, 28, 4, 128, 152064),
    "Qwen2.5 32B": Model(5120, 27648, 40, 8, 128, 152064),
    "Gemma 2B": Model(2048, 16384, 8, 1, 256, 256000),
    "Gemma 7B": Model(3072, 24576, 16, 16, 256, 256000),
    "Gemma 2 27B": Model(4608, 36864, 32, 16, 128, 256000),
    "Yi 34B": Model(7168, 20480, 56, 8, 128, 64000),
    "gpt-oss 20B": Model(2880, 2880, 64, 8, 64, 201088),
}


class Experts(NamedTuple):
    """The MLP of a mixture of experts: the number of experts, and the sizes of one as a Model."""

    count: int
    hidden: int
    inner: int

    def weights(self) -> list[tuple[int, int]]:
        """(units, cols) of an expert's products: gate and up together, and down."""
        return [(2 * self.inner, self.hidden), (self.hidden, self.inner)]


MIXTURES = {
    "Mixtral 8x7B": Experts(8, 4096, 14336),
    "Mixtral 8x22B": Experts(8, 6144, 16384),
    "Qwen1.5 MoE A2.7B": Experts(60, 2048, 1408),
    "Qwen3 30B A3B": Experts(128, 2048, 768),
    "Qwen3 235B A22B": Experts(128, 4096, 1536),
    "DeepSeek-V2 Lite": Experts(64, 2048, 1408),
    "DeepSeek-V3": Experts(256, 7168, 2048),
    "OLMoE 1B 7B": Experts(64, 2048, 1024),
    "gpt-oss 20B": Experts(32, 2880, 2880),
    "gpt-oss 120B": Experts(128, 2880, 2880),
    "Llama 4 Scout": Experts(16, 5120, 8192),
}
