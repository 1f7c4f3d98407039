"""By the counts: conflicts in shared memory, bytes, blocks of the launch, sectors of a request."""

answer = {"a": "banks", "b": "twice", "c": "blocks", "d": "sectors"}
