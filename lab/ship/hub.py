"""The layout that Hugging Face's kernel-builder compiles."""


def write(package, for_hub, folder):
    raise NotImplementedError
