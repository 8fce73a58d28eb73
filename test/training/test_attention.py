import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from wamdiff_ros.training.attention import chunked_attention, chunks_of
from wamdiff_ros.training.block_layout import batch_visibility

MASKS = {
    'blocks of 4': batch_visibility([(37, 48)], 4, 2, 37 + 3 * 48)[:, 0],
    'blocks of 32': batch_visibility([(37, 96)], 32, 1, 37 + 2 * 96)[:, 0],
    'unequal lengths': batch_visibility([(37, 32), (20, 64), (3, 32)], 8, 1, 148)[:, 0],
    'causal': torch.ones(1, 131, 131, dtype=torch.bool).tril(),
}


@pytest.mark.parametrize('name', MASKS)
def test_attention_in_chunks_equals_the_fused_kernel_with_its_gradients(name):
    visible = MASKS[name]
    torch.manual_seed(0)
    n, size = 3, visible.shape[1]
    query = torch.randn(n, size, 4, 16).transpose(1, 2).requires_grad_()
    key, value = torch.randn(2, n, 2, size, 16).requires_grad_().unbind(0)
    expected = scaled_dot_product_attention(
        query, key, value, attn_mask=visible[:, None], enable_gqa=True
    )
    got = chunked_attention(query, key, value, chunks_of(visible))
    torch.testing.assert_close(got, expected)
    upstream = torch.randn(expected.shape)
    wanted = torch.autograd.grad(expected, (query, key, value), upstream)
    for mine, right in zip(
        torch.autograd.grad(got, (query, key, value), upstream), wanted, strict=True
    ):
        torch.testing.assert_close(mine, right)


def test_chunks_leave_out_keys_that_no_row_sees():
    visible = batch_visibility([(64, 128)], 32, 1, 64 + 2 * 128)[:, 0]
    computed = sum(
        (chunk.rows.stop - chunk.rows.start) * sum(c.stop - c.start for c in chunk.columns)
        for chunk in chunks_of(visible)
    )
    assert visible.sum() <= computed < 0.6 * visible.numel()


def test_without_a_mask_every_row_sees_every_column():
    query, key, value = torch.randn(3, 2, 4, 9, 8).unbind(0)
    torch.testing.assert_close(
        chunked_attention(query, key, value), scaled_dot_product_attention(query, key, value)
    )
