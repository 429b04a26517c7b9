"""One flat walk over all stages, and rules as data."""

import math


def relative_error(ours, theirs):
    total = sum((a - b) * (a - b) for a, b in zip(ours, theirs, strict=True))
    size = sum(b * b for b in theirs)
    if total != total or size != size:
        return float("inf")
    if size == 0:
        return float("inf") if total > 0 else 0.0
    return math.sqrt(total) / math.sqrt(size)


def beyond(errors, bound):
    found = []
    for i in range(len(errors)):
        if math.isnan(errors[i]) or errors[i] > bound:
            found.append(i)
    return found


def stages(hidden, heads, logits):
    yield None, [], hidden[0]
    for i in range(len(heads)):
        for h in range(len(heads[i])):
            yield i, [h], heads[i][h]
        yield i, [], hidden[i + 1]
    yield len(heads), [], logits


def first_divergence(hidden, heads, logits, bound):
    place = None
    for layer, head, error in stages(hidden, heads, logits):
        wrong = len(beyond([error], bound)) == 1
        if place is None and wrong:
            place = (layer, head)
        elif place is not None and wrong and head and place[0] == layer and place[1]:
            place = (layer, place[1] + head)
    return place


def likely_cause(layer, heads, positions, num_layers, num_heads, num_tokens, first_pass, block_size):
    wrong = set(positions)
    every = set(range(num_tokens))
    rules = [
        (layer is None and 0 not in wrong, "position offset"),
        (layer is None, "embedding"),
        (layer == num_layers, "after the layers"),
        (not heads, "after the heads"),
        (set(heads) == set(range(num_heads)) - {0} and num_heads > 1, "strides"),
        (len(set(heads)) != num_heads, "some heads"),
        (wrong == {p for p in every if p >= first_pass}, "query positions"),
        (wrong == {p for p in every if p >= block_size}, "block table"),
        (0 in wrong and num_tokens - 1 not in wrong, "causal mask"),
        (True, "attention"),
    ]
    return next(name for fits, name in rules if fits)
