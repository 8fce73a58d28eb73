"""Static forwards over pages against static forwards over slots, both without compiling."""

import torch
from golden_data import features, golden_engine, golden_prompt

from wamdiff_ros.model.text import ALL
from wamdiff_ros.runtime.graph_runner import GraphRunner
from wamdiff_ros.runtime.kv_cache import KVCache
from wamdiff_ros.runtime.paged_attention import PagedCache
from wamdiff_ros.runtime.paged_forward import PagedForward
from wamdiff_ros.runtime.static_forward import StaticForward
from wamdiff_ros.runtime.torch_paged_kernel import TORCH_KERNELS

CPU = torch.device('cpu')
NONE = slice(0, 0)


def forwards(network):
    text, options = network.config.text, (256, torch.float32, CPU)
    for cache, kind in (
        (KVCache(text, 1, *options), StaticForward),
        (PagedCache(text, 1, *options, TORCH_KERNELS), PagedForward),
    ):
        runner = GraphRunner(CPU, compiler=lambda function: function)
        yield kind(network, network.text, cache, runner), cache, runner


@torch.inference_mode()
def test_prompts_and_blocks_are_the_same_over_pages_and_over_slots(tmp_path):
    engine = golden_engine('A_tied', tmp_path, block_size=8)
    network, mask_id = engine.network, engine.config.mask_token_id
    results = []
    for forward, cache, runner in forwards(network):
        out = []
        for name in ('P2', 'P1', 'P2'):
            prompt, images = golden_prompt(name, engine.config)
            x, positions, deepstack = engine._embed_prompts(
                [prompt], [features(engine, images)], 0, len(prompt)
            )
            cos, sin = network.text.rope(positions)
            cache.rollback(0)
            for part, rows in ((slice(0, 8), NONE), (slice(8, None), ALL)):
                arguments = x[:, part], cos[:, :, part], sin[:, :, part]
                features_of = [feature[:, part] for feature in deepstack]
                out.append(forward.prefill(*arguments, features_of, rows).clone())
                cache.commit(len(range(len(prompt))[part]))
            clean, masked = torch.full((1, 8), 7), torch.full((1, 8), mask_id)
            for tokens, skip in ((masked, 0), (torch.cat((clean, masked), 1), 8)):
                places = prompt.next_position + torch.arange(tokens.shape[1])
                rotation = network.text.rope(places.expand(3, 1, -1))
                out.append(forward.block_logits(tokens, *rotation, skip).clone())
            cache.commit(8)
        # Two parts of prompts and two of blocks, whatever the lengths.
        assert runner.captures == 4
        results.append(out)
    for wanted, mine in zip(*results, strict=True):
        assert mine.shape == wanted.shape
        torch.testing.assert_close(mine, wanted, atol=1e-4, rtol=0)
