"""What `load-gpt2` promises."""

import random
from typing import Any

from course.judge.expect import Failure, expect, expect_error

SIZES = {"n_layer": 2, "n_head": 2, "n_embd": 4, "n_positions": 6, "vocab_size": 7}


def _shapes(sizes: dict[str, Any] = SIZES) -> dict[str, tuple[int, ...]]:
    width = sizes["n_embd"]
    layer: dict[str, tuple[int, ...]] = {
        "ln_1.weight": (width,),
        "ln_1.bias": (width,),
        "attn.c_attn.weight": (width, 3 * width),
        "attn.c_attn.bias": (3 * width,),
        "attn.c_proj.weight": (width, width),
        "attn.c_proj.bias": (width,),
        "ln_2.weight": (width,),
        "ln_2.bias": (width,),
        "mlp.c_fc.weight": (width, 4 * width),
        "mlp.c_fc.bias": (4 * width,),
        "mlp.c_proj.weight": (4 * width, width),
        "mlp.c_proj.bias": (width,),
    }
    found: dict[str, tuple[int, ...]] = {
        "wte.weight": (sizes["vocab_size"], width),
        "wpe.weight": (sizes["n_positions"], width),
    }
    for index in range(sizes["n_layer"]):
        found |= {f"h.{index}.{name}": shape for name, shape in layer.items()}
    return found | {"ln_f.weight": (width,), "ln_f.bias": (width,)}


def _filled(shape: tuple[int, ...], rng: random.Random) -> Any:
    """Return numbers that fp16 holds exactly, so that every type has to give them back as they are."""
    if not shape:
        return rng.randint(-1024, 1024) / 256
    return [_filled(shape[1:], rng) for _ in range(shape[0])]


def _tensors(sizes: dict[str, Any] = SIZES) -> dict[str, Any]:
    rng = random.Random(0)
    return {name: _filled(shape, rng) for name, shape in _shapes(sizes).items()}


def _expect_all(loaded: Any, tensors: dict[str, Any]) -> None:
    """Hold every tensor that was loaded against what was stored, and name the first number that is wrong."""
    for name, wanted in tensors.items():
        found = loaded.values(name)
        if found != wanted:
            place = _first_difference(found, wanted)
            raise Failure(f"{name}{place or ''}: not the numbers that are stored under this name", None)


def _first_difference(found: Any, wanted: Any) -> str | None:
    if not isinstance(wanted, list):
        return None if found == wanted else f" is {found} where the file has {wanted}"
    if not isinstance(found, list) or len(found) != len(wanted):
        return f" has {len(found) if isinstance(found, list) else 0} rows where the file has {len(wanted)}"
    for index, (one, right) in enumerate(zip(found, wanted, strict=True)):
        place = _first_difference(one, right)
        if place is not None:
            return f"[{index}]{place}"
    return None


def lists_every_tensor(solution: Any) -> None:
    """`tensor_shapes` of a model of 2 layers with a width of 4 has 28 entries, each with its shape.

    With this list a checkpoint is checked before a byte of it is loaded.
    """
    for sizes in (SIZES, SIZES | {"n_layer": 1, "n_embd": 6, "n_head": 3, "n_positions": 5, "vocab_size": 3}):
        found = solution.tensor_shapes(solution.GPT2Config(**sizes))
        wanted = _shapes(sizes)
        if not isinstance(found, dict):
            raise Failure(f"gave {found!r}", "a dictionary of shapes by name", about_call=True)
        missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
        if missing or extra:
            text = [f"lacks {', '.join(missing)}"] if missing else []
            text += [f"has {', '.join(map(str, extra))}, which no checkpoint need hold"] if extra else []
            raise Failure(" and ".join(text), f"{len(wanted)} names", about_call=True)
        for name, shape in wanted.items():
            expect(found[name], shape, what=f"the shape of {name}")


def loads_what_is_stored(solution: Any) -> None:
    """Every number of every tensor is where it belongs, as it is stored: matrices stay `[in, out]`.

    Hugging Face keeps these matrices as OpenAI's code had them (Conv1D). One of them is square, and would look just as
    right transposed.
    """
    tensors = _tensors()
    loaded = solution.load_weights(solution.Checkpoint(tensors, as_="checkpoint"), SIZES, as_="weights")
    expect(loaded.num_layers(), 2)
    _expect_all(loaded, tensors)


def takes_names_with_a_prefix(solution: Any) -> None:
    """A checkpoint whose names begin with `transformer.` gives the same weights.

    `GPT2LMHeadModel` saves with the prefix, `GPT2Model` without, and the published file has none.
    """
    tensors = _tensors()
    prefixed = {f"transformer.{name}": values for name, values in tensors.items()}
    loaded = solution.load_weights(solution.Checkpoint(prefixed, as_="checkpoint"), SIZES, as_="weights")
    _expect_all(loaded, tensors)


def ignores_what_the_model_does_not_need(solution: Any) -> None:
    """Masks of old checkpoints and an `lm_head.weight` are ignored, with the prefix and without.

    The published `gpt2` holds twelve masks of 1024 × 1024 among its weights. The head is tied, so none is to be loaded.
    """
    tensors = _tensors()
    head = [[0.0] * 4] * 7
    mask = [[[[1.0, 0.0], [1.0, 1.0]]]]
    for prefix in ("", "transformer."):
        stored = {f"{prefix}{name}": values for name, values in tensors.items()}
        for layer in range(2):
            stored |= {f"{prefix}h.{layer}.attn.bias": mask, f"{prefix}h.{layer}.attn.masked_bias": [-10000.0]}
        stored["lm_head.weight"] = head
        loaded = solution.load_weights(solution.Checkpoint(stored, as_="checkpoint"), SIZES, as_="weights")
        _expect_all(loaded, tensors)


def keeps_the_layers_in_order(solution: Any) -> None:
    """In a model of 12 layers each layer has its own weights: `h.10` and `h.11` come after `h.9`.

    Sorted as text, 10 comes before 2. With the tests' two layers nobody sees it; GPT-2 small has twelve.
    """
    sizes = SIZES | {"n_layer": 12}
    tensors = _tensors(sizes)
    loaded = solution.load_weights(solution.Checkpoint(tensors, as_="checkpoint"), sizes, as_="weights")
    expect(loaded.num_layers(), 12)
    _expect_all(loaded, tensors)


def reads_several_files(solution: Any) -> None:
    """The tensors may be spread over several files of the folder.

    Large checkpoints come in shards.
    """
    tensors = _tensors()
    loaded = solution.load_weights(solution.Checkpoint(tensors, files=3, as_="checkpoint"), SIZES, as_="weights")
    _expect_all(loaded, tensors)


def gives_the_dtype_asked_for(solution: Any) -> None:
    """Every tensor has the dtype that was asked for, whatever the file has.

    One tensor left in another type is an error deep inside the first forward pass, or a silent copy in each.
    """
    tensors = _tensors()
    for stored, wanted in (("F32", "float16"), ("F16", "float32"), ("F32", "float64")):
        checkpoint = solution.Checkpoint(tensors, dtype=stored, as_="checkpoint")
        loaded = solution.load_weights(checkpoint, SIZES, wanted, as_="weights")
        expect(loaded.dtypes(), {wanted})
        _expect_all(loaded, tensors)


def names_a_missing_tensor(solution: Any) -> None:
    """A checkpoint that lacks a tensor is a `ValueError` that names it, and a folder without files is one too.

    A model that fills the gap with random numbers runs, and talks nonsense.
    """
    expect_error(ValueError, solution.load_weights, "an empty folder", SIZES)
    for name in ("wpe.weight", "h.1.mlp.c_fc.bias", "ln_f.weight"):
        tensors = _tensors()
        del tensors[name]
        expect_error(
            ValueError, solution.load_weights, solution.Checkpoint(tensors, as_="checkpoint"), SIZES, names=name
        )


def names_a_wrong_shape(solution: Any) -> None:
    """A tensor of another shape is a `ValueError` that names it and both shapes.

    A position table that is too long would load, and be right for short prompts.
    """
    for name, shape in (
        ("wpe.weight", (8, 4)),
        ("h.0.attn.c_attn.weight", (12, 4)),
        ("h.1.mlp.c_proj.weight", (4, 16)),
        ("h.1.ln_2.bias", (1,)),
    ):
        tensors = _tensors() | {name: _filled(shape, random.Random(1))}
        checkpoint = solution.Checkpoint(tensors, as_="checkpoint")
        for wanted in (name, ", ".join(map(str, shape)), ", ".join(map(str, _shapes()[name]))):
            expect_error(ValueError, solution.load_weights, checkpoint, SIZES, names=wanted)


def names_what_is_cut_off(solution: Any) -> None:
    """A file that ends too early is a `ValueError` that names a tensor whose bytes are not all there.

    A download that broke off has a whole header: all names and shapes are right.
    """
    tensors = _tensors()
    for cut in (1, 15):
        checkpoint = solution.Checkpoint(tensors, cut=cut, as_="checkpoint")
        expect_error(ValueError, solution.load_weights, checkpoint, SIZES, names="ln_f.bias")
    checkpoint = solution.Checkpoint(tensors, files=2, cut=1, as_="checkpoint")
    expect_error(ValueError, solution.load_weights, checkpoint, SIZES, names="ln_f.bias")
    expect_error(ValueError, solution.load_weights, solution.Checkpoint(tensors, cut_header=True), SIZES)
