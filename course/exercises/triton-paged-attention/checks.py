"""What `paged_attention` and `prefill_kernel` promise."""

from typing import Any

from course.judge.expect import expect, expect_error, expect_true
from course.judge.paged import expect_attention, make_case, plain_case, run


def a_prefill_is_causal(solution: Any) -> None:
    """Three new tokens of a context of 3 see one, two and three keys: values 1, 10, 100 give 1, 5.5 and 37.

    The first token sees itself and nothing else.
    """
    case = plain_case([[1.0, 10.0, 100.0]], [3])
    expect_attention(case, run(solution, case))


def a_chunk_sees_what_came_before(solution: Any) -> None:
    """The last 3 of 9 tokens see 7, 8 and 9 keys: values 1 to 9 give 4, 4.5 and 5.

    A chunk is the end of a context. Whoever masks by the row within the chunk lets it see one, two and three keys.
    """
    case = plain_case([[float(number) for number in range(1, 10)]], [3])
    expect_attention(case, run(solution, case))


def a_query_finds_its_key(solution: Any) -> None:
    """Four keys at right angles, the last two queries along keys 1 and 3: of 1, 10, 100 and 1000 come 10 and 1000.

    A score is a query times a key, number by number: a row of queries with a row of keys. `tl.dot` takes rows with
    columns, so the tile of keys is turned round.
    """
    case = plain_case([[1.0, 10.0, 100.0, 1000.0]], [2])
    keys = [[_along(2 * position + 5, 8.0)] for position in range(4)]
    case = case._replace(queries=[[_along(7, 64.0)], [_along(11, 64.0)]], keys=[keys])
    expect_attention(case, run(solution, case))


def one_new_token_decodes(solution: Any) -> None:
    """With one new token in each sequence, the launcher decodes: 8 query heads over 2 KV heads read each key once.

    The kernel for prompts gives the same numbers, and reads each key four times.
    """
    case = make_case([9, 30], [1, 1], num_heads=8)
    solution.traffic()
    expect_attention(case, run(solution, case))
    moved = solution.traffic()
    if moved is not None:
        cached = 2 * (9 + 30) * 2 * 32 * 4  # keys and values, 39 tokens, 2 heads of 32, 4 bytes
        small = 2 * 8 * 32 * 4 + 1024  # queries, and numbers that say where
        text = f"bytes loaded: {moved['loaded']}"
        expect_true(
            moved["loaded"] <= cached + small, text, expected=f"the cache's {cached}, and {small} at most beside"
        )


def float32_is_multiplied_as_float32(solution: Any) -> None:
    """In float32, with scores that spread over several tens, the answer is right to 0.0003.

    A GPU's default for float32 is TF32, with 10 bits behind the point instead of 23: of a score of 40, the hundredths
    are wrong.
    """
    case = make_case([9], [4], num_heads=1, num_kv_heads=1, scale=4.0)
    expect_attention(case, run(solution, case), within=3e-4)


def every_head_is_right(solution: Any) -> None:
    """With 4 query heads over 4 KV heads, every head of every row is right.

    Head 0 is right, often, where two strides are swapped, and where every head reads KV head 0.
    """
    case = make_case([11], [2], num_heads=4, num_kv_heads=4)
    expect_attention(case, run(solution, case))


def query_heads_share_a_kv_head(solution: Any) -> None:
    """With 6 query heads over 2 KV heads, heads 0 to 2 read KV head 0, and heads 3 to 5 read KV head 1.

    A query head's number is no KV head's number.
    """
    case = make_case([7], [4], num_heads=6)
    expect_attention(case, run(solution, case))


def a_long_context_takes_many_tiles(solution: Any) -> None:
    """The last 3 of 70 tokens, and the last 40: every tile of keys counts, and the mask starts where it should.

    Most tiles lie wholly in the past.
    """
    case = make_case([70, 70], [3, 40], num_heads=1, num_kv_heads=1, block_size=32)
    expect_attention(case, run(solution, case))


def queries_fill_tiles_partly(solution: Any) -> None:
    """Prompts of 15, 16, 17 and 33 tokens with blocks of 16 are right, and each leaves the others' rows alone.

    The last tile of a sequence is rarely full, and the next sequence's rows follow at once.
    """
    case = make_case([15, 16, 17, 33], [15, 16, 17, 33], num_heads=1, num_kv_heads=1, block_size=16)
    expect_attention(case, run(solution, case))


def a_mixed_batch_is_right(solution: Any) -> None:
    """A decode, a prefill and the end of a chunk in one launch: contexts of 37, 5 and 20, with 1, 5 and 8 new tokens.

    4 query heads over 2 KV heads, blocks of 8 in any order. This is a step of a busy engine.
    """
    case = make_case([37, 5, 20], [1, 5, 8], num_heads=4, num_kv_heads=2)
    expect_attention(case, run(solution, case))


def head_sizes_between_powers_of_two_are_masked(solution: Any) -> None:
    """With heads of 48 numbers, held in blocks of 64, nothing beside a head is read or written.

    The 16 numbers behind a head are the next head's.
    """
    case = make_case([10, 4], [3, 4], head_dim=48)
    expect_attention(case, run(solution, case))


def half_precision_is_summed_in_float32(solution: Any) -> None:
    """In float16, scores and the running softmax are float32; the answer is float16.

    Half precision is for memory.
    """
    case = make_case([21], [20], num_heads=1, num_kv_heads=1, dtype="float16")
    expect_attention(case, run(solution, case))


def the_grid_may_be_too_large(solution: Any) -> None:
    """With `max_query_len` of 70, where no sequence has more than 6 new tokens and one has none, nothing changes.

    A captured graph is cut for the largest batch that it will ever see. Programs without a query find that out, and
    load no key.
    """
    case = make_case([9, 12, 6], [2, 0, 6])
    loaded = []
    for max_query_len in (6, 70):
        solution.start_over_()
        solution.traffic()
        expect_attention(case, run(solution, case, max_query_len=max_query_len))
        moved = solution.traffic()
        loaded.append(0 if moved is None else moved["loaded"])
    small = 64 * 2 * 3 * 16  # for each further row, head and sequence a few numbers
    more = f"bytes loaded: {loaded[1]}, and {loaded[0]} with `max_query_len` of 6"
    expect_true(loaded[1] <= loaded[0] + small, more, expected=f"{small} more at most")


def an_output_is_made_where_none_is_given(solution: Any) -> None:
    """Without `out`, a new tensor comes back; with it, that very one.

    An engine that captures a graph hands over a buffer of its own.
    """
    case = make_case([5], [3])
    expect_attention(case, run(solution, case, with_out=False, spare_rows=0))
    solution.start_over_()
    case = make_case([5], [1])
    expect_attention(case, run(solution, case, with_out=False, spare_rows=0))


def with_nothing_to_do_nothing_is_written(solution: Any) -> None:
    """Of a batch where nobody has a new token, or without a sequence, `out` comes back as it was.

    An idle engine's step is no error.
    """
    queries = solution.tensor([[[1.0] * 32] * 2], as_="queries")
    memory = solution.tensor([[[[1.0] * 32] * 2] * 8], as_="keys")
    cache = solution.layer_cache(memory, memory, as_="cache")
    for start_loc, context_lens, tables in (([0, 0], [3], [[0]]), ([0], [], [])):
        out = solution.tensor([[[7.0] * 32] * 2], as_="out")
        lengths = solution.tensor(context_lens, "int32", as_="context_lens")
        table = solution.tensor(tables, "int32", as_="block_tables")
        starts = solution.tensor(start_loc, "int32", as_="query_start_loc")
        result = solution.paged_attention(queries, cache, table, starts, lengths, 0, 1.0, out, as_="attended")
        expect(solution.read(result), [[[7.0] * 32] * 2], what="what was returned")


def what_is_not_supported_is_refused(solution: Any) -> None:
    """Three query heads over 2 KV heads are a `ValueError`, and so are blocks of 4.

    A kernel that is launched with them reads past the end of the cache.
    """
    for num_heads, block_size in ((3, 8), (4, 4)):
        queries = solution.tensor([[[1.0] * 32] * num_heads], as_="queries")
        memory = solution.tensor([[[[1.0] * 32] * 2] * block_size], as_="keys")
        cache = solution.layer_cache(memory, memory, as_="cache")
        ints = (solution.tensor(each, "int32") for each in ([[0]], [0, 1], [1]))
        expect_error(ValueError, solution.paged_attention, queries, cache, *ints, 1, 1.0)
        solution.start_over_()


def _along(axis: int, length: float) -> list[float]:
    return [length if each == axis else 0.0 for each in range(32)]
