"""What is kept when backward begins, and all of one layer that is computed again."""


def answer(layers, kept, inputs, free):
    for again in range(layers + 1):
        at_once = kept if again else 0
        if (layers - again) * kept + again * inputs + at_once <= free:
            return again
    return None
