# One head after the other, as vectors; an address is built from where the block begins.
import triton
import triton.language as tl


@triton.jit
def copy(source, target, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr):
    number = tl.arange(0, DIMS)
    found = tl.load(source + number, mask=number < HEAD_DIM, other=0)
    tl.store(target + number, found.to(target.dtype.element_ty), mask=number < HEAD_DIM)


@triton.jit
def slot_write_kernel(
    k,
    v,
    k_cache,
    v_cache,
    slots,
    k_by_row,
    k_by_head,
    v_by_row,
    v_by_head,
    by_block,
    by_slot,
    by_head,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEADS: tl.constexpr,
    DIMS: tl.constexpr,
):
    token = tl.program_id(0)
    slot = tl.load(slots + token)
    if slot < 0:
        return
    block = slot // BLOCK_SIZE
    place = block * by_block + (slot - block * BLOCK_SIZE) * by_slot
    for head in range(NUM_HEADS):
        copy(k + token * k_by_row + head * k_by_head, k_cache + place + head * by_head, HEAD_DIM, DIMS)
        copy(v + token * v_by_row + head * v_by_head, v_cache + place + head * by_head, HEAD_DIM, DIMS)
