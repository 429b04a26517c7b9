# ruff: noqa: B905
"""Gathers first and weighs afterwards, key by key; the online softmax in terms of logarithms of sums."""

from math import exp, inf, isinf, log


class LayerCache:
    def __init__(self, num_blocks, block_size, num_kv_heads):
        self.block_size = block_size
        self.num_kv_heads = num_kv_heads
        self.keys = [[None for _ in range(block_size)] for _ in range(num_blocks)]
        self.values = [[None for _ in range(block_size)] for _ in range(num_blocks)]


def write_kv(keys, values, cache, slots):
    for key, value, slot in zip(keys, values, slots):
        if slot < 0:
            continue
        cache.keys[slot // cache.block_size][slot % cache.block_size] = tuple(key)
        cache.values[slot // cache.block_size][slot % cache.block_size] = tuple(value)


def gather_kv(cache, block_table, context_len):
    whole, rest = divmod(context_len, cache.block_size)
    parts = [(block, cache.block_size) for block in block_table[:whole]]
    if rest:
        parts.append((block_table[whole], rest))
    keys = [token for block, count in parts for token in cache.keys[block][:count]]
    values = [token for block, count in parts for token in cache.values[block][:count]]
    return keys, values


class OnlineSoftmax:
    def __init__(self, head_dim):
        self.maximum, self.total, self.accumulator = -inf, 0.0, [0.0] * head_dim

    def add(self, scores, values):
        """One key at a time: each is a block of its own."""
        for score, value in zip(scores, values):
            if isinf(score):
                continue
            if score > self.maximum:
                shrink = exp(self.maximum - score) if self.total else 0.0
                self.total = self.total * shrink + 1.0
                self.accumulator = [old * shrink + new for old, new in zip(self.accumulator, value)]
                self.maximum = score
            else:
                weight = exp(score - self.maximum)
                self.total += weight
                self.accumulator = [old + weight * new for old, new in zip(self.accumulator, value)]

    def result(self):
        if self.total == 0:
            return tuple(self.accumulator)
        return tuple(number / self.total for number in self.accumulator)


def attend(query, cache, block_table, num_keys, kv_head, scale):
    keys, values = gather_kv(cache, block_table, num_keys)
    scores = [sum(q * scale * k for q, k in zip(query, token[kv_head])) for token in keys]
    peak = max(scores)
    log_total = peak + log(sum(exp(score - peak) for score in scores))
    shares = [exp(score - log_total) for score in scores]
    return [sum(share * token[kv_head][i] for share, token in zip(shares, values)) for i in range(len(query))]


def paged_attention(queries, cache, block_tables, query_start_loc, context_lens, scale):
    answer = []
    for seq, context_len in enumerate(context_lens):
        rows = queries[query_start_loc[seq] : query_start_loc[seq + 1]]
        for behind, row in zip(range(len(rows) - 1, -1, -1), rows):
            per_kv_head = len(row) / cache.num_kv_heads
            heads = [int(head / per_kv_head) for head in range(len(row))]
            answer.append(
                [
                    attend(query, cache, block_tables[seq], context_len - behind, kv_head, scale)
                    for query, kv_head in zip(row, heads)
                ]
            )
    answer += [[[0.0 for _ in query] for query in row] for row in queries[len(answer) :]]
    return answer
