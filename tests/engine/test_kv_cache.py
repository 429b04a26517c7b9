"""The KV cache's tensors: their sizes, views, copies, and what is refused."""

import pytest
import torch

from solutions import kv_cache
from solutions.kv_cache import KVCache
from tests.engine.attention_checks import the_dtype_reaches_the_tensors

SHAPE = {"num_layers": 3, "block_size": 8, "num_kv_heads": 2, "head_dim": 32}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8], ids=str)


def make_cache(dtype: torch.dtype, num_blocks: int = 5) -> KVCache:
    return KVCache(**SHAPE, num_blocks=num_blocks, dtype=dtype, device="cpu")


@DTYPES
def test_layers_are_views_of_one_allocation(dtype: torch.dtype) -> None:
    cache = make_cache(dtype)
    storages = set()
    for index in range(3):
        layer = cache.layer(index)
        assert layer.keys.shape == layer.values.shape == (5, 8, 2, 32)
        assert layer.keys.dtype == layer.values.dtype == dtype
        storages |= {layer.keys.untyped_storage().data_ptr(), layer.values.untyped_storage().data_ptr()}
        if dtype == torch.int8:
            assert layer.key_scales is not None and layer.value_scales is not None
            assert layer.key_scales.shape == layer.value_scales.shape == (5, 2)
            assert layer.key_scales.dtype == layer.value_scales.dtype == torch.float32
        else:
            assert layer.key_scales is None and layer.value_scales is None
    assert len(storages) == 1
    cache.data.zero_()
    cache.layer(1).values.fill_(1)
    assert cache.data.float().sum() == 5 * 8 * 2 * 32, "a layer's values are nobody else's"


@DTYPES
def test_the_bytes_are_those_of_the_tensors(dtype: torch.dtype) -> None:
    cache = make_cache(dtype)
    tensors = {
        tensor.data_ptr(): tensor.nbytes for index in range(3) for tensor in cache.layer(index) if tensor is not None
    }
    assert cache.num_bytes == sum(tensors.values()) == 5 * KVCache.bytes_per_block(**SHAPE, dtype=dtype)


def test_int8_takes_about_half_of_float16() -> None:
    sizes = {**SHAPE, "block_size": 16, "head_dim": 64}
    ratio = KVCache.bytes_per_block(**sizes, dtype=torch.int8) / KVCache.bytes_per_block(**sizes, dtype=torch.float16)
    assert 0.5 < ratio < 0.505


def test_the_dtype_reaches_the_tensors() -> None:
    the_dtype_reaches_the_tensors(kv_cache)


@DTYPES
def test_copying_blocks(dtype: torch.dtype) -> None:
    cache = make_cache(dtype)
    cache.data.copy_(torch.randint(-100, 100, cache.data.shape))
    if cache.scales is not None:
        cache.scales.uniform_()
    data, scales = cache.data.clone(), None if cache.scales is None else cache.scales.clone()
    cache.copy_blocks([])
    assert torch.equal(cache.data, data)
    cache.copy_blocks([(0, 3), (3, 1)])  # both sources are read before block 3 is written
    source = [0, 3, 2, 0, 4]
    assert torch.equal(cache.data, data[:, :, source])
    assert cache.scales is None or (scales is not None and torch.equal(cache.scales, scales[:, :, source]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_size": 4}, "block size 4 is not supported: choose one of 8, 16, 32, 64, 128, 256"),
        ({"block_size": 24}, "block size 24 is not supported"),
        ({"block_size": 512}, "block size 512 is not supported"),
        ({"head_dim": 16}, "head size 16 is not supported: it must be a multiple of 16 from 32 to 128"),
        ({"head_dim": 100}, "head size 100 is not supported"),
        ({"head_dim": 256}, "head size 256 is not supported"),
        ({"dtype": torch.float64}, "torch.float64 is not supported: choose one of float32, float16, bfloat16, int8"),
        ({"num_blocks": 0}, "cannot have 0 blocks"),
        ({"num_layers": 0}, "cannot have 0 layers of 2 KV heads"),
        ({"num_kv_heads": 0}, "cannot have 3 layers of 0 KV heads"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change: dict[str, object], message: str) -> None:
    arguments = {**SHAPE, "num_blocks": 5, "dtype": torch.float16, "device": "cpu", **change}
    with pytest.raises(ValueError, match=message):
        KVCache(**arguments)  # type: ignore[arg-type]
    if "num_blocks" not in change:
        del arguments["num_blocks"], arguments["device"]
        with pytest.raises(ValueError, match=message):
            KVCache.bytes_per_block(**arguments)  # type: ignore[arg-type]
