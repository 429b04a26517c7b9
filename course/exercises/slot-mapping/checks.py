"""What `slot-mapping` promises."""

from typing import Any

from course.judge.expect import expect, expect_error


def starts_in_the_first_block(solution: Any) -> None:
    """A sequence of 1 token with table [3] and blocks of 4 has it in slot 12, the first of block 3.

    A slot is a row of the KV tensors: block 3 begins after the 12 rows of blocks 0 to 2.
    """
    expect(solution.slot_mapping([3], 4, 1, 1), [12])


def a_decode_writes_the_last_position(solution: Any) -> None:
    """A sequence of 6 tokens with table [7, 3] writes its newest token to slot 13: position 5, not 6.

    One too far leaves a hole that attention reads, and the numbers look nearly right.
    """
    expect(solution.slot_mapping([7, 3], 4, 6, 1), [13])
    expect(solution.slot_mapping([7], 4, 4, 1), [31])
    expect(solution.slot_mapping([7, 3], 4, 5, 1), [12])


def looks_the_block_up(solution: Any) -> None:
    """With table [3, 0] and blocks of 4, the first four positions are in the slots 12 to 15.

    Positions are logical, slots are physical: the table stands between them.
    """
    expect(solution.slot_mapping([3, 0], 4, 4, 4), [12, 13, 14, 15])


def moves_on_to_the_next_block(solution: Any) -> None:
    """With table [5, 2], positions 2 to 5 are in the slots 22, 23, 8, 9.

    The next block of a sequence lies anywhere; only inside a block are neighbours neighbours.
    """
    expect(solution.slot_mapping([5, 2], 4, 6, 4), [22, 23, 8, 9])


def a_second_chunk_goes_on(solution: Any) -> None:
    """A prompt of 10 in chunks of 6 and 4: the second chunk's slots go on where the first ended.

    A chunk that starts at position 0 again overwrites the chunk before it.
    """
    expect(solution.slot_mapping([4, 1, 6], 4, 6, 6), [16, 17, 18, 19, 4, 5])
    expect(solution.slot_mapping([4, 1, 6], 4, 10, 4), [6, 7, 24, 25])


def spare_blocks_do_not_matter(solution: Any) -> None:
    """A table may hold more blocks than the context fills: position 4 of table [2, 5, 9] is in slot 20.

    A block that was taken ahead of need is the last entry, but not the one to write to.
    """
    expect(solution.slot_mapping([2, 5, 9], 4, 5, 1), [20])


def any_block_size_works(solution: Any) -> None:
    """Blocks of 1, of 3 and of 16 tokens follow the same rule.

    Real engines use 16 and more; nothing in the rule asks for a power of two.
    """
    expect(solution.slot_mapping([4, 0, 2], 1, 3, 3), [4, 0, 2])
    expect(solution.slot_mapping([2, 0], 3, 5, 5), [6, 7, 8, 0, 1])
    expect(solution.slot_mapping([1, 0], 16, 18, 3), [31, 0, 1])


def no_new_token_has_no_slot(solution: Any) -> None:
    """With no new token there is no slot, whatever the context.

    A sequence that waits in a step writes nothing.
    """
    expect(solution.slot_mapping([1], 4, 3, 0), [])
    expect(solution.slot_mapping([], 4, 0, 0), [])


def matches_the_chapter(solution: Any) -> None:
    """Table [5, 6, 7, 0] with blocks of 4 puts positions 0 to 13 into the slots 20 to 31, 0 and 1.

    Block 0 was freed and reused: it is the table's last.
    """
    expect(solution.slot_mapping([5, 6, 7, 0], 4, 14, 14), [*range(20, 32), 0, 1])


def refuses_positions_before_the_start(solution: Any) -> None:
    """More new tokens than the context has, or fewer than none, is a `ValueError`.

    Python reads `blocks[-1]` as the last block: the token would be written over another.
    """
    expect_error(ValueError, solution.slot_mapping, [3, 1], 4, 2, 3)
    expect_error(ValueError, solution.slot_mapping, [3, 1], 4, 2, -1)
    expect(solution.slot_mapping([3, 1], 4, 2, 2), [12, 13])


def refuses_a_context_past_the_table(solution: Any) -> None:
    """A context that does not fit into the blocks is a `ValueError`; one that fills them is not.

    Somebody forgot to grow the table. Better to hear it here than from a kernel.
    """
    expect(solution.slot_mapping([3, 1], 4, 8, 1), [7])
    expect_error(ValueError, solution.slot_mapping, [3, 1], 4, 9, 1)
    expect_error(ValueError, solution.slot_mapping, [], 4, 1, 1)
    expect_error(ValueError, solution.slot_mapping, [3, 1], 4, 9, 0)
