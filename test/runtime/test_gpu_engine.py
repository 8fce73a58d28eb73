"""On a GPU: captured forwards say what eager ones say, and a replay is the device's alone."""

from dataclasses import replace

import pytest
import torch

from wamdiff_ros.benchmark.contender import with_config
from wamdiff_ros.model.chat import prompt_from_ids
from wamdiff_ros.model.config import load_config
from wamdiff_ros.model.weights import load_network
from wamdiff_ros.runtime.engine import Engine, ImageFeatures
from wamdiff_ros.runtime.flashinfer_attention import flashinfer_kernels, refusal
from wamdiff_ros.runtime.options import PLAIN, EngineOptions
from wamdiff_ros.runtime.paged_forward import PagedBackend
from wamdiff_ros.share import share_path

pytestmark = pytest.mark.gpu
CUDA = torch.device('cuda')


@pytest.fixture(params=['sdpa', 'flashinfer'])
def backend(request):
    """A network, what makes its attention, and a tolerance; float32 for sdpa: little rounding."""
    if not torch.cuda.is_available():
        pytest.skip('no CUDA device')
    folder = share_path('models', 'nano')
    config = load_config(folder)
    if request.param == 'sdpa':
        return load_network(folder, config, dtype=torch.float32, device=CUDA), lambda: None, 1e-3
    reason = refusal(config.text, torch.bfloat16, CUDA)
    if reason is not None:
        pytest.skip(f'FlashInfer: {reason}')
    network = load_network(folder, config, dtype=torch.bfloat16, device=CUDA)
    kernels = flashinfer_kernels(config.text, torch.bfloat16, CUDA)
    return network, lambda: PagedBackend(kernels), 5e-2


def text_prompt(config, length, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 256, (length,), generator=generator).tolist()
    return prompt_from_ids(ids, [], config)


def block_logits(engine, prompt):
    """Logits of a masked first block, and of a second one behind a clean block."""
    size, mask = engine.config.block_size, engine.config.mask_token_id
    engine.prefill([prompt], [[]], 3 * size)
    masked = torch.full((1, size), mask, device=CUDA)
    every = torch.ones(1, size, dtype=torch.bool, device=CUDA)
    clean = torch.full((1, size), 65, device=CUDA)
    first = engine.denoise(masked, every).clone()
    return first, engine.denoise(masked, every, clean).clone()


def test_graph_equals_eager_at_several_lengths(backend):
    network, attention, tolerance = backend
    eager = Engine(network, EngineOptions(runtime='eager'), attention=attention())
    graph = Engine(network, EngineOptions(runtime='graph'), attention=attention())
    for seed, length in enumerate((40, 41, 100, 33, 40, 150)):  # some again after others
        prompt = text_prompt(network.config, length, seed)
        for wanted, mine in zip(
            block_logits(eager, prompt), block_logits(graph, prompt), strict=True
        ):
            scale = wanted.abs().max()
            assert (mine - wanted).abs().max() <= tolerance * scale


def test_a_moving_window_on_graphs_is_one_that_is_computed_anew(backend):
    network, attention, tolerance = backend
    config = replace(network.config, window_frames=3)
    network, grid = with_config(network, config), (1, 8, 16)
    frames = [ImageFeatures(number, grid, *seen_on_gpu(config, 32, number)) for number in range(6)]
    plain = Engine(network, PLAIN)
    graph = Engine(network, EngineOptions(runtime='graph'), attention=attention())
    brackets = config.vision_start_token_id, config.vision_end_token_id
    frame = [brackets[0], *[config.image_token_id] * 32, brackets[1]]
    masked = torch.full((1, config.block_size), config.mask_token_id, device=CUDA)
    for newest in range(len(frames)):
        shown = frames[max(0, newest - 2) : newest + 1]
        ids = [*range(65, 76), *frame * len(shown), *range(80, 120)]
        prompt = prompt_from_ids(ids, [grid] * len(shown), config)
        answers = []
        for engine in (plain, graph):
            engine.prefill([prompt], [shown], config.block_size)
            answers.append(engine.denoise(masked, torch.ones_like(masked, dtype=torch.bool)))
        wanted, mine = answers
        assert (mine - wanted).abs().max() <= tolerance * wanted.abs().max()


def seen_on_gpu(config, tokens, seed):
    """Make up what the tower says of an image: its tokens, and deepstack features."""
    generator = torch.Generator().manual_seed(seed)
    depth = len(config.vision.deepstack_layers)
    shape = (1 + depth, tokens, config.text.hidden_size)
    first, *others = torch.randn(shape, generator=generator).mul(0.1).to(CUDA)
    return first, tuple(others)


@pytest.mark.parametrize('backend', ['flashinfer'], indirect=True)
def test_flashinfer_says_what_sdpa_says(backend):
    network, attention, tolerance = backend
    plain, other = Engine(network, PLAIN), Engine(network, PLAIN, attention=attention())
    for length in (1, 31, 32, 33, 200):
        prompt = text_prompt(network.config, length, length)
        for wanted, mine in zip(
            block_logits(plain, prompt), block_logits(other, prompt), strict=True
        ):
            assert (mine - wanted).abs().max() <= tolerance * wanted.abs().max()


def test_a_captured_step_allocates_nothing_and_waits_for_nothing(backend):
    network, attention, _ = backend
    engine = Engine(network, EngineOptions(runtime='graph'), attention=attention())
    prompt = text_prompt(network.config, 100, 0)
    block_logits(engine, prompt)
    size = engine.config.block_size
    tokens = torch.full((1, size), engine.config.mask_token_id, device=CUDA)
    rotations = engine._rotations(size)

    def step():
        return engine._static.block_logits(tokens, *rotations, 0)

    with torch.inference_mode():
        step()
        torch.cuda.synchronize()
        segments = torch.cuda.memory_stats()['segment.all.allocated']
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            torch.cuda.set_sync_debug_mode('error')  # raises where the host would wait
            try:
                step()
            finally:
                torch.cuda.set_sync_debug_mode('default')
    assert torch.cuda.memory_stats()['segment.all.allocated'] == segments
    names = {event.key for event in profile.key_averages()}
    assert 'cudaGraphLaunch' in names
    waits = {'cudaDeviceSynchronize', 'cudaStreamSynchronize', 'cudaEventSynchronize'}
    # The profiler itself waits for the device at its end, outside of the step.
    assert not names & (waits - {'cudaDeviceSynchronize'})
    assert 'cudaMalloc' not in names
    assert not [name for name in names if 'Memcpy HtoD' in name or 'Memcpy DtoH' in name]
