"""A tick costs as much after hundreds of ticks as after a few."""

import gc
import sys
from dataclasses import replace

import numpy as np
import torch
from tiny_session import load, observation, tiny_model

FEW, MANY, WINDOWS = 20, 240, 3


def has_memory(tensor):
    return tensor.device.type != 'meta' and not torch._is_functional_tensor(tensor)


def tensor_bytes():
    """Return what all tensors hold, each storage once."""
    gc.collect()
    storages = {}
    for held in gc.get_objects():
        # Compiling leaves tensors of other kinds behind, which hold no memory.
        if type(held) in (torch.Tensor, torch.nn.Parameter) and has_memory(held):
            if held.is_mkldnn:  # packed weights, opaque
                storages[id(held)] = held.numel() * held.element_size()
                continue
            storage = held.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def test_memory_and_forwards_per_tick_are_flat_over_hundreds_of_ticks(tmp_path):
    session = load(tiny_model(tmp_path), max_new_tokens=32, description_max_tokens=32, rollouts=2)
    seen, random = observation(), np.random.default_rng(0)

    def ticks(count):
        counts = set()
        for number in range(count):
            rgb = random.integers(0, 256, (64, 96, 3), np.uint8)
            now = replace(seen, t0_ns=number, frames=(replace(seen.frames[0], rgb=rgb),))
            result = session.plan(now)
            counts.add(replace(result.counts, answer_tokens=0, bulk_filled_tokens=0))
            if number % 10 == 0:
                session.describe(now)
        return counts

    few = ticks(FEW)
    held, caches = tensor_bytes(), session._engine.cache_allocations
    many, grown = set(), []
    for _ in range(WINDOWS):
        gc.collect()
        blocks = sys.getallocatedblocks()
        many |= ticks(MANY // WINDOWS)
        gc.collect()
        grown.append(sys.getallocatedblocks() - blocks)
    assert tensor_bytes() <= held
    assert session._engine.cache_allocations == caches
    # Python's own memory: what stays of every tick shows in every window; other threads and
    # caches that fill up once do not.
    assert min(grown) < MANY // WINDOWS, grown
    assert {c.prefill_forwards for c in many} == {c.prefill_forwards for c in few}
    assert {c.prompt_tokens for c in many} == {c.prompt_tokens for c in few}
