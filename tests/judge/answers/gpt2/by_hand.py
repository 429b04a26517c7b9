"""Every formula written out: no torch.nn.functional, no addmm, no unbind."""

import math

import torch


class GPT2:
    def layer_norm(self, hidden, weight, bias):
        centred = hidden - hidden.mean(dim=-1, keepdim=True)
        variance = (centred * centred).mean(dim=-1, keepdim=True)
        return centred * torch.rsqrt(variance + self.config.layer_norm_epsilon) * weight + bias

    def embed(self, batch):
        tokens = torch.index_select(self.weights.wte, 0, batch.tokens)
        return tokens + torch.index_select(self.weights.wpe, 0, batch.positions)

    def heads_of(self, rows):
        return torch.stack(torch.chunk(rows, self.config.n_head, dim=-1), dim=1)

    def attention(self, layer, cache, hidden, batch, index=0, observe=None):
        rows = self.layer_norm(hidden, layer.ln_1_weight, layer.ln_1_bias)
        fused = torch.einsum("te,ef->tf", rows, layer.attn_c_attn_weight) + layer.attn_c_attn_bias
        q, k, v = (self.heads_of(part) for part in torch.split(fused, self.config.n_embd, dim=-1))
        self.write_kv(k, v, cache, batch.slots, batch.touched)
        scale = 1 / math.sqrt(self.config.n_embd // self.config.n_head)
        out = self.attend(
            q, cache, batch.block_tables, batch.query_start_loc, batch.context_lens, batch.max_query_len, scale
        )
        if observe is not None:
            observe("heads", index, out)
        side_by_side = torch.cat([out[:, head] for head in range(self.config.n_head)], dim=-1)
        return side_by_side @ layer.attn_c_proj_weight + layer.attn_c_proj_bias

    def mlp(self, layer, hidden):
        x = self.layer_norm(hidden, layer.ln_2_weight, layer.ln_2_bias) @ layer.mlp_c_fc_weight + layer.mlp_c_fc_bias
        x = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
        return x @ layer.mlp_c_proj_weight + layer.mlp_c_proj_bias

    def forward(self, batch, caches, observe=None):
        x = self.embed(batch)
        i = -1
        for i, layer in enumerate(self.weights.layers):
            if observe is not None:
                observe("hidden", i, x)
            middle = x + self.attention(layer, caches[i], x, batch, i, observe)
            x = middle + self.mlp(layer, middle)
        if observe is not None:
            observe("hidden", i + 1, x)
        return x

    def logits(self, hidden):
        rows = self.layer_norm(hidden, self.weights.ln_f_weight, self.weights.ln_f_bias)
        return torch.einsum("te,ve->tv", rows, self.weights.wte)

    def next_tokens(self, batch, caches):
        every = self.logits(self.forward(batch, caches))
        return torch.max(every[batch.sample_rows], dim=-1).indices
