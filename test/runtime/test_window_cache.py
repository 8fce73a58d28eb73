"""Window mode on a tiny random network: never anything else than a full prefill."""

import pytest
import torch
from golden_data import checkpoint, golden_engine

from wamdiff_ros.model.chat import prompt_from_ids
from wamdiff_ros.model.config import CheckpointError, load_config
from wamdiff_ros.runtime.engine import Engine
from wamdiff_ros.runtime.graph_runner import GraphRunner
from wamdiff_ros.runtime.options import EngineOptions
from wamdiff_ros.runtime.paged_forward import PagedBackend
from wamdiff_ros.runtime.torch_paged_kernel import TORCH_KERNELS
from wamdiff_ros.training.block_layout import lay_out_blocks
from wamdiff_ros.training.network_forward import ImageGroup, NetworkForward

BLOCK, FRAMES = 8, 3
HEAD, QUESTION = 11, 5  # tokens; neither they nor frames fill whole blocks
GRID = (1, 4, 4)  # four tokens, and two brackets
FRAME = [502, *[500] * 4, 503]
REUSING = EngineOptions(runtime='eager', fused_weights=False, packed_weights=False)


@pytest.fixture(scope='module')
def plain(tmp_path_factory):
    """Return an engine that computes every prompt from its start."""
    folder = tmp_path_factory.mktemp('window')
    return golden_engine('A_tied', folder, block_size=BLOCK, window_frames=FRAMES)


def windowed(plain, options=REUSING, **arguments):
    return Engine(plain.network, options, **arguments)


def frame(plain, number):
    generator = torch.Generator().manual_seed(number)
    patches = torch.rand(16, 1536, generator=generator) * 2 - 1
    return plain.encode_image(number, patches.numpy(), GRID)


def tick(plain, newest, question=0, head=0):
    """Return the prompt of a tick and its frames, the newest of which has this number."""
    numbers = range(max(0, newest - FRAMES + 1), newest + 1)
    ids = [10 + head, *range(11, 10 + HEAD)]
    ids += [token for _ in numbers for token in FRAME]
    ids += [30 + question, *range(31, 30 + QUESTION)]
    prompt = prompt_from_ids(ids, [GRID] * len(numbers), plain.config)
    return prompt, [frame(plain, number) for number in numbers]


def logits_of(engine, prompt, images):
    reused, _ = engine.prefill([prompt], [images], BLOCK)
    masked = torch.full((1, BLOCK), engine.config.mask_token_id)
    return reused, engine.denoise(masked, torch.ones(1, BLOCK, dtype=torch.bool))


def on_static_buffers(**arguments):
    """Options with a runner that captures nothing: the buffers are what is tested."""
    runner = GraphRunner(torch.device('cpu'), lambda function: function)
    return {'options': EngineOptions(runtime='graph'), 'runner': runner, **arguments}


VARIANTS = {
    'slots': lambda: {},
    'pages': lambda: {'attention': PagedBackend(TORCH_KERNELS)},
    'fast': lambda: {'options': EngineOptions(runtime='eager')},
    'static slots': on_static_buffers,
    'static pages': lambda: on_static_buffers(attention=PagedBackend(TORCH_KERNELS)),
}


@pytest.mark.parametrize('variant', VARIANTS)
def test_nothing_drifts_however_long_the_window_moves(variant, plain):
    window = windowed(plain, **VARIANTS[variant]())
    drift = []
    for newest in range(50):
        prompt, images = tick(plain, newest)
        (_, wanted), (_, mine) = (logits_of(e, prompt, images) for e in (plain, window))
        drift.append(float((mine - wanted).norm() / wanted.norm()))
    assert max(drift) < 2e-5
    other = logits_of(plain, *tick(plain, 48))[1]
    assert (other - wanted).norm() / wanted.norm() > 1e-3, 'frames make a difference'


def test_a_full_window_is_equal_to_a_cold_start_to_the_last_bit(plain):
    window, cold = windowed(plain), windowed(plain)
    for newest in range(8):
        prompt, images = tick(plain, newest)
        _, mine = logits_of(window, prompt, images)
        cold.reset()
        reused, wanted = logits_of(cold, prompt, images)
        assert reused == 0
        assert torch.equal(mine, wanted)


def test_the_engine_sees_what_training_showed(plain):
    prompt, images = tick(plain, 5)
    answer = torch.arange(40, 40 + BLOCK).numpy()
    mask = plain.config.mask_token_id
    noisy = torch.full((1, BLOCK), mask).numpy()
    levels = torch.ones(1, BLOCK).numpy()
    layout = lay_out_blocks([prompt], [answer], [noisy], [levels], BLOCK, mask, window=True)
    features = torch.stack([torch.stack((i.tokens, *i.deepstack)) for i in images])
    starts = torch.tensor([start for start, _ in prompt.images])
    group = ImageGroup(GRID, None, torch.zeros(FRAMES, dtype=torch.long), starts, features)
    forward = NetworkForward(plain.network, train_vision=False, fused_attention=False)
    with torch.no_grad():
        trained = forward(layout, [group])
    torch.testing.assert_close(logits_of(plain, prompt, images)[1], trained, atol=1e-4, rtol=1e-4)


def test_frames_see_neither_each_other_nor_the_text(plain):
    window = windowed(plain)
    kept = []
    for head, newest in ((0, 4), (3, 5)):
        window.reset()
        logits_of(window, *tick(plain, newest, head=head))
        kept.append(list(window._window._frames.values()))
    (_, two, three), (same_two, same_three, _) = kept
    for one, other in ((two, same_two), (three, same_three)):
        assert torch.equal(one.keys, other.keys)
        assert torch.equal(one.values, other.values)


def test_only_the_newest_frame_and_what_follows_it_is_computed(plain):
    window = windowed(plain)
    for newest in range(6):
        prompt, images = tick(plain, newest)
        reused, _ = logits_of(window, prompt, images)
        assert len(prompt) - reused == (HEAD if newest == 0 else 0) + len(FRAME) + QUESTION
        assert window.prefill_forwards == (3 if newest == 0 else 2)
    other, images = tick(plain, 5, question=7)
    reused, mine = logits_of(window, other, images)
    assert len(other) - reused == QUESTION, 'another question about the same frames'
    again, same = logits_of(window, other, images)
    assert again == reused
    assert torch.equal(mine, same)


def test_after_a_reset_everything_is_computed_again(plain):
    window = windowed(plain)
    for newest in range(5):
        before = logits_of(window, *tick(plain, newest))[1]
    window.reset()
    reused, mine = logits_of(window, *tick(plain, 4))
    assert reused == 0
    assert torch.equal(mine, before)


def test_another_text_before_the_frames_leaves_them_known(plain):
    window = windowed(plain)
    for newest in range(5):
        logits_of(window, *tick(plain, newest))
    prompt, images = tick(plain, 4, head=3)
    reused, mine = logits_of(window, prompt, images)
    assert reused == FRAMES * len(FRAME)
    torch.testing.assert_close(mine, logits_of(plain, prompt, images)[1], atol=1e-4, rtol=0)


def test_a_picture_that_is_shown_twice_is_one_frame_in_two_places(plain):
    window = windowed(plain)
    prompt, images = tick(plain, 5)
    images[1] = images[2]
    _, mine = logits_of(window, prompt, images)
    assert len(window._window._frames) == 2
    torch.testing.assert_close(mine, logits_of(plain, prompt, images)[1], atol=1e-4, rtol=0)


def test_what_is_kept_does_not_grow(plain):
    window = windowed(plain)
    for newest in range(20):
        logits_of(window, *tick(plain, newest))
    assert len(window._window._frames) == FRAMES


def test_what_window_mode_cannot_do_is_refused(plain):
    window = windowed(plain)
    prompt, images = tick(plain, 1)
    with pytest.raises(ValueError, match='2 prompts; window mode takes one'):
        window.prefill([prompt] * 2, [images] * 2, BLOCK)
    ids = [10, 11, *FRAME, 40, *FRAME, 30]
    between = prompt_from_ids(ids, [GRID] * 2, plain.config)
    with pytest.raises(ValueError, match='text between images, at token 8'):
        window.prefill([between], [images], BLOCK)
    with pytest.raises(ValueError, match='has no image'):
        window.prefill([prompt_from_ids([10, 11], [], plain.config)], [[]], BLOCK)


def test_the_number_of_frames_comes_from_the_checkpoint(tmp_path):
    assert load_config(checkpoint('A_tied', tmp_path / 'a')).window_frames == 1
    config = load_config(checkpoint('A_tied', tmp_path / 'b', window_frames=4))
    assert (config.window_frames, config.window_interval_s) == (4, 0.1)
    for folder, fields, reason in (
        ('c', {'window_frames': 0}, 'window_frames is 0'),
        ('d', {'window_frames': 4, 'window_interval_s': 60}, 'window_interval_s is 60.0, wanted'),
        ('e', {'window_frames': 4, 'block_size': 1}, 'autoregressive checkpoint cannot have'),
    ):
        with pytest.raises(CheckpointError, match=reason):
            load_config(checkpoint('A_tied', tmp_path / folder, **fields))
