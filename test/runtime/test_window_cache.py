"""Window mode on a tiny random network: exact until a frame has left, then a bounded drift."""

import pytest
import torch
from golden_data import checkpoint, golden_engine

from wamdiff_ros.model.chat import prompt_from_ids
from wamdiff_ros.model.config import CheckpointError, load_config
from wamdiff_ros.runtime.engine import Engine
from wamdiff_ros.runtime.options import PLAIN, EngineOptions
from wamdiff_ros.runtime.paged_forward import PagedBackend
from wamdiff_ros.runtime.torch_paged_kernel import TORCH_KERNELS
from wamdiff_ros.runtime.window_cache import WindowCache

BLOCK, FRAMES = 8, 3
GRID = (1, 4, 6)  # six tokens, and two brackets: one chunk
FRAME = [502, *[500] * 6, 503]


@pytest.fixture(scope='module')
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp('window')
    return golden_engine('A_tied', folder, block_size=BLOCK, window_frames=FRAMES)


def windowed(plain, options=PLAIN, **arguments):
    return Engine(plain.network, options, window=WindowCache(plain.network), **arguments)


def frame(plain, number):
    generator = torch.Generator().manual_seed(number)
    patches = torch.rand(24, 1536, generator=generator) * 2 - 1
    return plain.encode_image(number, patches.numpy(), GRID)


def tick(plain, newest, question=0, head=0):
    """Return the prompt of a tick and its frames, the newest of which has this number."""
    numbers = range(max(0, newest - FRAMES + 1), newest + 1)
    ids = [10 + head, *range(11, 10 + BLOCK)]
    ids += [token for _ in numbers for token in FRAME]
    ids += [30 + question, 31, 32, 33, 34]
    prompt = prompt_from_ids(ids, [GRID] * len(numbers), plain.config)
    return prompt, [frame(plain, number) for number in numbers]


def logits_of(engine, prompt, images):
    reused, _ = engine.prefill([prompt], [images], BLOCK)
    masked = torch.full((1, BLOCK), engine.config.mask_token_id)
    return reused, engine.denoise(masked, torch.ones(1, BLOCK, dtype=torch.bool))


def drift(plain, window, ticks):
    """Return, per tick, how far window mode is from a full prefill, relative to the logits."""
    found = []
    for newest in range(ticks):
        prompt, images = tick(plain, newest)
        plain.reset()
        (_, wanted), (_, mine) = (logits_of(e, prompt, images) for e in (plain, window))
        found.append(float((mine - wanted).norm() / wanted.norm()))
    return found


VARIANTS = {
    'slots': {},
    'pages': {'attention': PagedBackend(TORCH_KERNELS)},
    'fast': {'options': EngineOptions(runtime='eager')},
}


@pytest.mark.parametrize('variant', VARIANTS)
def test_nothing_drifts_until_a_frame_has_left_and_the_drift_levels_off(variant, plain):
    found = drift(plain, windowed(plain, **VARIANTS[variant]), 50)
    assert max(found[:FRAMES]) < 1e-5
    later = found[FRAMES:]
    assert min(later) > 1e-4, 'a frame that has left has still been seen'
    assert max(later[-20:]) < 1.5 * max(later[:20])


def test_keys_and_values_of_the_first_layer_are_exact_for_good(plain):
    window = windowed(plain)
    for newest in range(8):
        prompt, images = tick(plain, newest)
        plain.reset()
        for engine in (plain, window):
            engine.prefill([prompt], [images], BLOCK)
        for name in ('keys', 'values'):
            wanted, mine = (
                getattr(e._cache, name)[0, :, :, : len(prompt)] for e in (plain, window)
            )
            torch.testing.assert_close(mine, wanted, atol=1e-5, rtol=0)


def test_only_the_newest_frame_and_what_follows_it_is_computed(plain):
    window = windowed(plain)
    for newest in range(6):
        prompt, images = tick(plain, newest)
        reused, _ = logits_of(window, prompt, images)
        assert len(prompt) - reused == (BLOCK if newest == 0 else 0) + len(FRAME) + 5
    other, images = tick(plain, 5, question=7)
    reused, mine = logits_of(window, other, images)
    assert len(other) - reused == 5, 'another question about the same frames'
    again, same = logits_of(window, other, images)
    assert again == reused and torch.equal(mine, same)


def test_after_a_reset_it_is_as_a_cold_start(plain):
    window = windowed(plain)
    for newest in range(7):
        logits_of(window, *tick(plain, newest))
    drifted = logits_of(window, *tick(plain, 7))
    window.reset()
    reused, mine = logits_of(window, *tick(plain, 7))
    plain.reset()
    _, wanted = logits_of(plain, *tick(plain, 7))
    assert reused == 0
    torch.testing.assert_close(mine, wanted, atol=1e-4, rtol=0)
    assert not torch.allclose(drifted[1], wanted, atol=1e-4)


def test_another_text_before_the_frames_starts_anew(plain):
    window = windowed(plain)
    for newest in range(5):
        logits_of(window, *tick(plain, newest))
    prompt, images = tick(plain, 5, head=3)
    reused, mine = logits_of(window, prompt, images)
    plain.reset()
    assert reused == 0
    torch.testing.assert_close(mine, logits_of(plain, prompt, images)[1], atol=1e-4, rtol=0)


def test_what_is_kept_does_not_grow(plain):
    window = windowed(plain)
    for newest in range(20):
        logits_of(window, *tick(plain, newest))
    assert len(window._window._segments) == 1 + FRAMES


def test_a_checkpoint_that_was_not_trained_for_it_is_refused(tmp_path):
    engine = golden_engine('A_tied', tmp_path, block_size=BLOCK)
    with pytest.raises(CheckpointError, match='window_frames 1, wanted 2 or more'):
        WindowCache(engine.network)


def test_frames_that_do_not_fill_chunks_are_refused(plain):
    ids = [10, 11, *FRAME, *FRAME, 30]
    prompt = prompt_from_ids(ids, [GRID] * 2, plain.config)
    images = [frame(plain, 0), frame(plain, 1)]
    with pytest.raises(ValueError, match='begins or ends at token 2, inside of a chunk of 8'):
        windowed(plain).prefill([prompt], [images], BLOCK)
    ids = [*range(10, 18), *FRAME, 40, *FRAME, 30]
    prompt = prompt_from_ids(ids, [GRID] * 2, plain.config)
    with pytest.raises(ValueError, match='text between frames, at token 16'):
        windowed(plain).prefill([prompt], [images], BLOCK)


def test_the_number_of_frames_comes_from_the_checkpoint(tmp_path):
    assert load_config(checkpoint('A_tied', tmp_path / 'a')).window_frames == 1
    assert load_config(checkpoint('A_tied', tmp_path / 'b', window_frames=4)).window_frames == 4
    with pytest.raises(CheckpointError, match='window_frames is 0'):
        load_config(checkpoint('A_tied', tmp_path / 'c', window_frames=0))
