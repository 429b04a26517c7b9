"""Block by block with an online softmax, all heads at once, and a mask of numbers instead of minus infinity."""

import torch


def write_kv(keys, values, cache, slots, touched=None):
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            place = divmod(slot, cache.keys.size(1))
            cache.keys[place] = keys[row]
            cache.values[place] = values[row]


def paged_attention(queries, cache, block_tables, query_start_loc, context_lens, max_query_len, scale, out=None):
    if out is None:
        out = queries.new_zeros(queries.shape)
    kind = torch.promote_types(queries.dtype, torch.float32)
    block_size, num_kv_heads = cache.keys.size(1), cache.keys.size(2)
    sharers = queries.size(1) // num_kv_heads
    for seq in range(context_lens.numel()):
        first, last = int(query_start_loc[seq]), int(query_start_loc[seq + 1])
        length = int(context_lens[seq])
        if first == last:
            continue
        mine = queries[first:last].to(kind).unflatten(1, (num_kv_heads, sharers))  # [q, kv_heads, sharers, d]
        behind = torch.arange(last - first - 1, -1, -1, device=queries.device)  # tokens after each query
        total = mine.new_zeros(mine.shape[:3])
        peak = mine.new_full(mine.shape[:3], -3e38)
        mean = torch.zeros_like(mine)
        for begin in range(0, length, block_size):
            count = min(block_size, length - begin)
            block = int(block_tables[seq, begin // block_size])
            keys, values = (each[block, :count].to(kind) for each in (cache.keys, cache.values))
            scores = (mine.unsqueeze(-2) * keys.permute(1, 0, 2).unsqueeze(1)).sum(
                -1
            ) * scale  # [q, kv, sharers, count]
            positions = torch.arange(begin, begin + count, device=queries.device)
            hidden = (positions >= length - behind.unsqueeze(1))[:, None, None]
            higher = torch.maximum(peak, scores.masked_fill(hidden, -3e38).amax(-1))
            weights = (scores - higher.unsqueeze(-1)).exp().masked_fill(hidden, 0)
            shrink = (peak - higher).exp()
            total = total * shrink + weights.sum(-1)
            mean = mean * shrink.unsqueeze(-1) + torch.matmul(weights, values.transpose(0, 1))
            peak = higher
        out[first:last] = (mean / total.unsqueeze(-1)).flatten(1, 2).to(out.dtype)
    return out
