"""The running sum is added to in place, and the norm is PyTorch's own. What `observe` was shown changes afterwards."""

import torch
from torch.nn.functional import gelu
from torch.nn.functional import layer_norm as normalise


class GPT2:
    def embed(self, batch):
        return self.weights.wte[batch.tokens] + self.weights.wpe[batch.positions]

    def layer_norm(self, hidden, weight, bias):
        return normalise(hidden, weight.shape, weight, bias, self.config.layer_norm_epsilon)

    def attention(self, layer, cache, hidden, batch, index=0, observe=None):
        T, E = hidden.shape
        H, D = self.config.n_head, self.config.head_dim
        x = self.layer_norm(hidden, layer.ln_1_weight, layer.ln_1_bias)
        qkv = x @ layer.attn_c_attn_weight + layer.attn_c_attn_bias
        q, k, v = [part.view(T, H, D) for part in qkv.split(E, dim=-1)]
        self.write_kv(k, v, cache, batch.slots, batch.touched)
        heads = self.attend(
            q, cache, batch.block_tables, batch.query_start_loc, batch.context_lens, batch.max_query_len, D**-0.5
        )
        if observe is not None:
            observe("heads", index, heads)
        return heads.reshape(T, E) @ layer.attn_c_proj_weight + layer.attn_c_proj_bias

    def mlp(self, layer, hidden):
        x = self.layer_norm(hidden, layer.ln_2_weight, layer.ln_2_bias)
        x = gelu(x @ layer.mlp_c_fc_weight + layer.mlp_c_fc_bias, approximate="tanh")
        return x @ layer.mlp_c_proj_weight + layer.mlp_c_proj_bias

    def forward(self, batch, caches, observe=None):
        h = self.embed(batch)
        for i in range(self.config.n_layer):
            if observe is not None:
                observe("hidden", i, h)
            layer = self.weights.layers[i]
            h += self.attention(layer, caches[i], h, batch, i, observe)
            h += self.mlp(layer, h)
        if observe is not None:
            observe("hidden", self.config.n_layer, h)
        return h

    def logits(self, hidden):
        return self.layer_norm(hidden, self.weights.ln_f_weight, self.weights.ln_f_bias) @ self.weights.wte.T

    def next_tokens(self, batch, caches):
        return torch.argmax(self.logits(self.forward(batch, caches)[batch.sample_rows]), dim=-1)
