"""What `packed-forward` promises. The right values are computed here, by a GPT-2 in plain Python, in float64."""

import math
import random
from typing import Any

from course.judge.expect import Failure, expect, expect_true

SIZES = {"n_layer": 2, "n_head": 3, "n_embd": 12, "n_positions": 24, "vocab_size": 13, "layer_norm_epsilon": 1e-3}
NUM_BLOCKS, BLOCK_SIZE = 12, 4
FP32 = 5e-5  # relative to 1 or to the value, whichever is larger

Rows = list[list[float]]


def _weights(sizes: dict[str, Any] = SIZES, seed: int = 0) -> dict[str, Any]:
    """Return weights by their names in a checkpoint, large enough that every part of the model matters."""
    rng = random.Random(seed)
    width = sizes["n_embd"]

    def matrix(rows: int, columns: int, spread: float = 1.0) -> Rows:
        return [[rng.gauss(0, spread) for _ in range(columns)] for _ in range(rows)]

    def vector(columns: int, middle: float = 0.0) -> list[float]:
        return [rng.gauss(middle, 0.3) for _ in range(columns)]

    found: dict[str, Any] = {
        "wte.weight": matrix(sizes["vocab_size"], width),
        "wpe.weight": matrix(sizes["n_positions"], width),
        "ln_f.weight": vector(width, 1.0),
        "ln_f.bias": vector(width),
    }
    shapes = {"attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width)}
    shapes |= {"mlp.c_fc": (width, 4 * width), "mlp.c_proj": (4 * width, width)}
    for layer in range(sizes["n_layer"]):
        for norm in ("ln_1", "ln_2"):
            found[f"h.{layer}.{norm}.weight"] = vector(width, 1.0)
            found[f"h.{layer}.{norm}.bias"] = vector(width)
        for name, (inner, outer) in shapes.items():
            found[f"h.{layer}.{name}.weight"] = matrix(inner, outer, inner**-0.5)
            found[f"h.{layer}.{name}.bias"] = vector(outer)
    return found


# GPT-2 in plain Python: a row is a list.


def _linear(row: list[float], weights: dict[str, Any], name: str) -> list[float]:
    columns = zip(*weights[f"{name}.weight"], strict=True)
    sums = (sum(x * w for x, w in zip(row, column, strict=True)) for column in columns)
    return [total + bias for total, bias in zip(sums, weights[f"{name}.bias"], strict=True)]


def _norm(row: list[float], weights: dict[str, Any], name: str, epsilon: float) -> list[float]:
    mean = sum(row) / len(row)
    variance = sum((x - mean) ** 2 for x in row) / len(row)
    size = math.sqrt(variance + epsilon)
    pairs = zip(row, weights[f"{name}.weight"], weights[f"{name}.bias"], strict=True)
    return [(x - mean) / size * weight + bias for x, weight, bias in pairs]


def _gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _add(rows: Rows, others: Rows) -> Rows:
    return [[a + b for a, b in zip(row, other, strict=True)] for row, other in zip(rows, others, strict=True)]


def _embed(tokens: list[int], weights: dict[str, Any]) -> Rows:
    return _add([weights["wte.weight"][token] for token in tokens], weights["wpe.weight"][: len(tokens)])


def _heads(hidden: Rows, weights: dict[str, Any], sizes: dict[str, Any], layer: int) -> list[Rows]:
    """Return `[T, H, D]`: every head's output for one sequence whose layer input is `hidden`."""
    width, num_heads = sizes["n_embd"], sizes["n_head"]
    size = width // num_heads
    epsilon = sizes["layer_norm_epsilon"]
    qkv = [
        _linear(_norm(row, weights, f"h.{layer}.ln_1", epsilon), weights, f"h.{layer}.attn.c_attn") for row in hidden
    ]
    found: list[Rows] = []
    for position, row in enumerate(qkv):
        found.append([])
        for start in range(0, width, size):
            query = row[start : start + size]
            seen = qkv[: position + 1]
            keys = [each[width + start : width + start + size] for each in seen]
            values = [each[2 * width + start : 2 * width + start + size] for each in seen]
            scores = [sum(q * k for q, k in zip(query, key, strict=True)) / math.sqrt(size) for key in keys]
            shares = [math.exp(score - max(scores)) for score in scores]
            found[-1].append(
                [
                    sum(s * v for s, v in zip(shares, column, strict=True)) / sum(shares)
                    for column in zip(*values, strict=True)
                ]
            )
    return found


def _project(heads: list[Rows], weights: dict[str, Any], layer: int) -> Rows:
    return [_linear([x for head in row for x in head], weights, f"h.{layer}.attn.c_proj") for row in heads]


def _mlp(hidden: Rows, weights: dict[str, Any], sizes: dict[str, Any], layer: int) -> Rows:
    normed = [_norm(row, weights, f"h.{layer}.ln_2", sizes["layer_norm_epsilon"]) for row in hidden]
    inner = [[_gelu(x) for x in _linear(row, weights, f"h.{layer}.mlp.c_fc")] for row in normed]
    return [_linear(row, weights, f"h.{layer}.mlp.c_proj") for row in inner]


def _forward(tokens: list[int], weights: dict[str, Any], sizes: dict[str, Any] = SIZES, times: int = 1) -> list[Rows]:
    """Return each layer's input and the last layer's output for a sequence; attention gives `times` what it should."""
    hidden = [_embed(tokens, weights)]
    for layer in range(sizes["n_layer"]):
        heads = [[[times * x for x in head] for head in row] for row in _heads(hidden[-1], weights, sizes, layer)]
        middle = _add(hidden[-1], _project(heads, weights, layer))
        hidden.append(_add(middle, _mlp(middle, weights, sizes, layer)))
    return hidden


def _logits(rows: Rows, weights: dict[str, Any], sizes: dict[str, Any] = SIZES) -> Rows:
    normed = [_norm(row, weights, "ln_f", sizes["layer_norm_epsilon"]) for row in rows]
    return [[sum(x * w for x, w in zip(row, word, strict=True)) for word in weights["wte.weight"]] for row in normed]


# How the checks compare.


def _compare(found: Any, wanted: Any, what: str, names: list[str], within: float = FP32) -> None:
    """Fail at the first number that is wrong, and say which it is. `names` says what the axes count, outermost first.

    Of a name that ends in a list of words, such as `row: …|…`, the words are taken for the numbers.
    """
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            shape = len(found) if isinstance(found, list) else found
            raise Failure(f"{what}: {shape} along the axis of {names[0].partition(':')[0]}s", str(len(wanted)))
        axis, _, words = names[0].partition(":")
        labels = words.split("|") if words else [f"{axis} {index}" for index in range(len(wanted))]
        for label, one, right in zip(labels, found, wanted, strict=True):
            _compare(one, right, f"{what}, {label}", names[1:], within)
    elif not isinstance(found, float) or not abs(found - wanted) <= within * max(1.0, abs(wanted)):
        text = f"{found:.6g}" if isinstance(found, float) else repr(found)
        raise Failure(f"{what}: {text}", f"{wanted:.6g}")


def _rows(*requests: tuple[str, range]) -> str:
    """Name the rows of a batch: `row:position 0 of request A|…`."""
    return "row:" + "|".join(f"position {position} of request {name}" for name, some in requests for position in some)


def _model(solution: Any, weights: dict[str, Any], sizes: dict[str, Any] = SIZES, **options: Any) -> Any:
    return solution.tiny_gpt2(sizes, weights, as_="model", **options)


def adds_token_and_position(solution: Any) -> None:
    """`embed` gives each row the embedding of its token plus the embedding of its position, and nothing else.

    Two tables, two look-ups, one sum. Some models scale the first by the root of the width; GPT-2 does not.
    """
    weights = _weights()
    model = _model(solution, weights)
    batch = solution.packed([[[5, 0, 12], 3, [2], True]], BLOCK_SIZE, as_="batch")
    found = solution.read(model.embed(batch))
    _compare(found, _embed([5, 0, 12], weights), "embedding", [_rows(("A", range(3))), "dim"])


def takes_positions_from_the_batch(solution: Any) -> None:
    """In a batch of a decode at position 6, a prefill of 3 and a chunk from position 4 on, every row has its position.

    Rows of a packed batch lie side by side, and their positions do not. A count that starts anew in each pass, or that
    runs on from one request into the next, is right for the first prefill and for nothing else.
    """
    weights = _weights()
    model = _model(solution, weights)
    tokens = {"A": [1, 2, 3, 4, 5, 6, 7], "B": [7, 7, 7], "C": [0, 1, 2, 3, 9, 8]}
    one = solution.packed([[[7], 7, [3, 1], True]], BLOCK_SIZE, as_="decode")
    found = solution.read(model.embed(one))
    _compare(found, _embed(tokens["A"], weights)[6:], "embedding", [_rows(("A", range(6, 7))), "dim"])
    requests = [[[7], 7, [3, 1], True], [[7, 7, 7], 3, [0], True], [[9, 8], 6, [5, 2], False]]
    batch = solution.packed(requests, BLOCK_SIZE, as_="batch")
    wanted = _embed(tokens["A"], weights)[6:] + _embed(tokens["B"], weights) + _embed(tokens["C"], weights)[4:]
    names = _rows(("A", range(6, 7)), ("B", range(3)), ("C", range(4, 6)))
    _compare(solution.read(model.embed(batch)), wanted, "embedding", [names, "dim"])


def normalises_each_row(solution: Any) -> None:
    """`layer_norm` of [1, 0, 0, 0] is [1.732, −0.577, −0.577, −0.577], before weight and bias.

    The variance is the mean of the squares: divided by 4 here, not by 3. At a width of 768 the difference is 0.07 %,
    which is small enough to live for years.
    """
    sizes = SIZES | {"n_embd": 4, "n_head": 1, "layer_norm_epsilon": 1e-5}
    model = _model(solution, _weights(sizes), sizes)
    ones, zeros = solution.tensor([1.0] * 4, as_="ones"), solution.tensor([0.0] * 4, as_="zeros")
    rows = solution.tensor([[1.0, 0.0, 0.0, 0.0], [2.0, 4.0, 6.0, 8.0]], as_="rows")
    plain = {"plain.weight": [1.0] * 4, "plain.bias": [0.0] * 4}
    wanted = [_norm(row, plain, "plain", 1e-5) for row in ([1.0, 0.0, 0.0, 0.0], [2.0, 4.0, 6.0, 8.0])]
    _compare(solution.read(model.layer_norm(rows, ones, zeros)), wanted, "layer norm", ["row", "dim"])
    weight, bias = (
        solution.tensor([2.0, 1.0, 0.5, 0.0], as_="weight"),
        solution.tensor([1.0, 0.0, -1.0, 3.0], as_="bias"),
    )
    scaled = {"plain.weight": [2.0, 1.0, 0.5, 0.0], "plain.bias": [1.0, 0.0, -1.0, 3.0]}
    wanted = [_norm(row, scaled, "plain", 1e-5) for row in ([1.0, 0.0, 0.0, 0.0], [2.0, 4.0, 6.0, 8.0])]
    _compare(solution.read(model.layer_norm(rows, weight, bias)), wanted, "layer norm", ["row", "dim"])


def takes_epsilon_from_the_config(solution: Any) -> None:
    """`layer_norm` of [0, 0, 0, 0.01] shows the epsilon: with 1e-5 it ends in 1.3988, with 1e-12 in 1.7321.

    Rows of ordinary size hide it, and the embedding of a trained model has small ones.
    """
    for epsilon in (1e-5, 1e-3):
        sizes = SIZES | {"n_embd": 4, "n_head": 1, "layer_norm_epsilon": epsilon}
        model = _model(solution, _weights(sizes), sizes)
        ones, zeros = solution.tensor([1.0] * 4, as_="ones"), solution.tensor([0.0] * 4, as_="zeros")
        rows = solution.tensor([[0.0, 0.0, 0.0, 0.01]], as_="rows")
        wanted = [_norm([0.0, 0.0, 0.0, 0.01], {"n.weight": [1.0] * 4, "n.bias": [0.0] * 4}, "n", epsilon)]
        _compare(solution.read(model.layer_norm(rows, ones, zeros)), wanted, "layer norm", ["row", "dim"])


def uses_the_tanh_gelu(solution: Any) -> None:
    """`mlp` is norm, `c_fc`, GELU in its tanh form, `c_proj`: in each layer with that layer's weights.

    The two forms of GELU differ by 0.0005 at most, and a model of 12 layers adds that up 12 times.
    """
    weights = _weights()
    model = _model(solution, weights)
    rows = [[math.sin(3 * row + column) for column in range(12)] for row in range(3)]
    hidden = solution.tensor(rows, as_="hidden")
    for layer in range(2):
        found = solution.read(solution.layer_mlp(model, layer, hidden))
        _compare(found, _mlp(rows, weights, SIZES, layer), f"layer {layer}, feed-forward output", ["row", "dim"])


def cuts_queries_keys_and_values_in_thirds(solution: Any) -> None:
    """`attention` cuts the fused projection into three thirds, then each into heads: every head's output is right.

    Cut head by head, every shape is right and every number is wrong. NaN says that `attend` came before `write_kv`.
    Where one token alone is right and five are not, look at the scale: a single key gets all the weight.
    """
    weights = _weights()
    model = _model(solution, weights)
    tokens = [3, 1, 4, 1, 5]
    rows = _embed(tokens, weights)
    for count in (1, 5):
        batch = solution.packed([[tokens[:count], count, [4, 0], True]], BLOCK_SIZE, as_="batch")
        cache = solution.caches(SIZES, NUM_BLOCKS, BLOCK_SIZE)[0]
        witness = solution.Witness(as_="witness")
        solution.layer_attention(model, 0, cache, solution.tensor(rows[:count], as_="hidden"), batch, witness)
        expect(witness.calls(), [["heads", 0]], what="what observe was shown")
        names = [_rows(("A", range(count))), "head", "dim"]
        _compare(witness.values("heads", 0), _heads(rows[:count], weights, SIZES, 0), "layer 0", names)


def projects_the_heads(solution: Any) -> None:
    """`attention` lays a row's heads side by side, in order, and multiplies by `attn_c_proj`, which is `[in, out]`.

    The matrix is square: transposed, it fits just as well.
    """
    weights = _weights()
    model = _model(solution, weights)
    tokens = [3, 1, 4, 1, 5]
    rows = _embed(tokens, weights)
    batch = solution.packed([[tokens, 5, [4, 0], True]], BLOCK_SIZE, as_="batch")
    hidden = solution.tensor(rows, as_="hidden")
    for layer in range(2):
        cache = solution.caches(SIZES, NUM_BLOCKS, BLOCK_SIZE)[0]
        found = solution.read(solution.layer_attention(model, layer, cache, hidden, batch))
        wanted = _project(_heads(rows, weights, SIZES, layer), weights, layer)
        _compare(found, wanted, f"layer {layer}, attention output", [_rows(("A", range(5))), "dim"])


def normalises_before_each_part(solution: Any) -> None:
    """`forward` returns the last layer's output, each part's output added to what went into that part.

    The norms stand before the parts and inside the sum (GPT-2 is pre-norm): from the embedding to the end, a row is
    only ever added to.
    """
    weights = _weights()
    model = _model(solution, weights)
    tokens = [3, 1, 4, 1, 5]
    batch = solution.packed([[tokens, 5, [4, 0], True]], BLOCK_SIZE, as_="batch")
    found = model.forward(batch, solution.caches(SIZES, NUM_BLOCKS, BLOCK_SIZE))
    _compare(solution.read(found), _forward(tokens, weights)[-1], "output", [_rows(("A", range(5))), "dim"])


def shows_every_layer(solution: Any) -> None:
    """`forward` shows `observe` each layer's input and heads, in the order of computation, and the last layer's output.

    This is what the parity harness listens to. Without it a wrong logit has no address.
    """
    weights = _weights()
    model = _model(solution, weights)
    tokens = [3, 1, 4, 1, 5]
    batch = solution.packed([[tokens, 5, [4, 0], True]], BLOCK_SIZE, as_="batch")
    witness = solution.Witness(as_="witness")
    model.forward(batch, solution.caches(SIZES, NUM_BLOCKS, BLOCK_SIZE), witness)
    order = [["hidden", 0], ["heads", 0], ["hidden", 1], ["heads", 1], ["hidden", 2]]
    expect(witness.calls(), order, what="what observe was shown")
    hidden = _forward(tokens, weights)
    for layer, rows in enumerate(hidden):
        what = f"layer {layer}, input" if layer < 2 else "layer 1, output"
        _compare(witness.values("hidden", layer), rows, what, [_rows(("A", range(5))), "dim"])
    for layer in range(2):
        wanted = _heads(hidden[layer], weights, SIZES, layer)
        _compare(witness.values("heads", layer), wanted, f"layer {layer}", [_rows(("A", range(5))), "head", "dim"])


def goes_through_the_seams(solution: Any) -> None:
    """What `self.attend` returns is what is projected: an `attend` that gives twice as much changes the output.

    A faster kernel is put in there. A model that computes attention by itself would never call it.
    """
    weights = _weights()
    model = _model(solution, weights, doubled=True)
    tokens = [3, 1, 4, 1, 5]
    batch = solution.packed([[tokens, 5, [4, 0], True]], BLOCK_SIZE, as_="batch")
    found = model.forward(batch, solution.caches(SIZES, NUM_BLOCKS, BLOCK_SIZE))
    _compare(solution.read(found), _forward(tokens, weights, times=2)[-1], "output", [_rows(("A", range(5))), "dim"])


def normalises_before_the_tied_head(solution: Any) -> None:
    """`logits` is the final norm, then the product with the token embedding: one number for each word.

    GPT-2 has no output matrix of its own. In a checkpoint you look for one in vain.
    """
    weights = _weights()
    model = _model(solution, weights)
    rows = [[math.cos(2 * row + column) * (1 + column) for column in range(12)] for row in range(3)]
    found = solution.read(model.logits(solution.tensor(rows, as_="hidden")))
    _compare(found, _logits(rows, weights), "logits", ["row", "token"])


TOKENS = {"A": [3, 1, 4, 1, 5, 9, 2], "B": [6, 5, 3, 5, 8], "C": [9, 7, 9, 3, 2, 3, 8, 4, 6, 2]}
BLOCKS = {"A": [7, 2], "B": [9, 4], "C": [1, 10, 5]}
# Two steps: A and C get their first six tokens; then A decodes, B comes with its whole prompt, C with another chunk.
STEPS = [[("A", 0, 6, True), ("C", 0, 6, False)], [("A", 6, 7, True), ("B", 0, 5, True), ("C", 6, 10, False)]]


def _batch(solution: Any, step: list[tuple[str, int, int, bool]]) -> Any:
    requests = [[TOKENS[name][start:end], end, BLOCKS[name], samples] for name, start, end, samples in step]
    return solution.packed(requests, BLOCK_SIZE, as_="batch")


def computes_a_mixed_batch(solution: Any) -> None:
    """A decode, a prefill and the second half of a chunked prompt in one pass give what each request gives alone.

    Twice: the second step reads keys and values that the first has written, by tables that are in no order.
    """
    weights = _weights()
    model = _model(solution, weights)
    cache = solution.caches(SIZES, NUM_BLOCKS, BLOCK_SIZE)
    alone = {name: _forward(tokens, weights) for name, tokens in TOKENS.items()}
    for number, step in enumerate(STEPS, 1):
        hidden = model.forward(_batch(solution, step), cache)
        names = _rows(*((name, range(start, end)) for name, start, end, _ in step))
        rows = [row for name, start, end, _ in step for row in alone[name][-1][start:end]]
        _compare(solution.read(hidden), rows, f"step {number}, output", [names, "dim"])
        logits = solution.read(model.logits(hidden))
        _compare(logits, _logits(rows, weights), f"step {number}, logits", [names, "token"])


def every_layer_has_its_own_cache(solution: Any) -> None:
    """Layer i writes to `caches[i]` and reads from it; all slots that hold no token stay as they were.

    One cache for all layers works in a prefill without context, since each layer overwrites what the last one wrote.
    """
    weights = _weights()
    model = _model(solution, weights)
    caches = solution.caches(SIZES, NUM_BLOCKS, BLOCK_SIZE)
    tokens, blocks = [3, 1, 4, 1, 5], [4, 0]
    model.forward(solution.packed([[tokens, 5, blocks, True]], BLOCK_SIZE, as_="batch"), caches)
    hidden = _forward(tokens, weights)
    for layer, cache in enumerate(caches):
        name = f"h.{layer}"
        normed = [_norm(row, weights, f"{name}.ln_1", SIZES["layer_norm_epsilon"]) for row in hidden[layer]]
        qkv = [_linear(row, weights, f"{name}.attn.c_attn") for row in normed]
        for part, what in ((1, "keys"), (2, "values")):
            stored = solution.read(cache.keys if part == 1 else cache.values)
            for position, row in enumerate(qkv):
                there = stored[blocks[position // BLOCK_SIZE]][position % BLOCK_SIZE]
                mine = row[12 * part : 12 * part + 12]
                wanted = [mine[start : start + 4] for start in range(0, 12, 4)]
                _compare(there, wanted, f"layer {layer}, cached {what}, position {position}", ["head", "dim"])
            untouched = [x for block in stored[1:4] + stored[5:] for slot in block for head in slot for x in head]
            expect_true(all(x != x for x in untouched), f"layer {layer}: {what} were written to blocks of nobody")


def samples_from_the_last_rows(solution: Any) -> None:
    """`next_tokens` gives the most likely token for each row in `sample_rows`, and none for an unfinished prompt.

    Rows of other lengths lie in between, so the last row of the batch is one request's business only.
    """
    weights = _weights(seed=1)
    model = _model(solution, weights)
    cache = solution.caches(SIZES, NUM_BLOCKS, BLOCK_SIZE)
    for step in STEPS:
        ends = [(name, end) for name, _, end, samples in step if samples]
        rows = [_logits(_forward(TOKENS[name][:end], weights)[-1][-1:], weights)[0] for name, end in ends]
        wanted = [row.index(max(row)) for row in rows]
        found = solution.read(model.next_tokens(_batch(solution, step), cache))
        who = " and ".join(f"{name} after {end} tokens" for name, end in ends)
        expect(found, wanted, what=f"the next token of {who}")


def computes_in_the_weights_dtype(solution: Any) -> None:
    """With weights in float64 the result is right to ten digits; nothing is rounded to another type on the way.

    The same code serves fp32, fp16 and bf16. A constant of a fixed type in the middle would undo one of them.
    """
    weights = _weights()
    model = _model(solution, weights, dtype="float64")
    batch = solution.packed([[TOKENS["A"], 7, BLOCKS["A"], True]], BLOCK_SIZE, as_="batch")
    hidden = model.forward(batch, solution.caches(SIZES, NUM_BLOCKS, BLOCK_SIZE, "float64"))
    wanted = _forward(TOKENS["A"], weights)[-1]
    _compare(solution.read(hidden), wanted, "output", [_rows(("A", range(7))), "dim"], 1e-10)
    found = solution.read(model.logits(hidden))
    _compare(found, _logits(wanted, weights), "logits", [_rows(("A", range(7))), "token"], 1e-10)
