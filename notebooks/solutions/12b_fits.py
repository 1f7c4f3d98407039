"""A wheel for the stable ABI, or of Python alone, fits later releases; any other fits its own."""


def answer(wheel, python):
    interpreter, abi, _ = wheel.removesuffix(".whl").split("-")[-3:]
    digits = interpreter.lstrip("cpy")
    wanted = int(digits[0]), int(digits[1:] or 0)
    return wanted <= python if abi in ("abi3", "none") else wanted == python
