import json

import pytest
import torch
from golden_data import checkpoint

from wamdiff_ros.model.config import CheckpointError, load_config
from wamdiff_ros.model.weights import load_network


def change(folder, path, value):
    """Set the field at the dotted `path` of config.json; None removes it."""
    file = folder / 'config.json'
    config = json.loads(file.read_text())
    *parents, key = path.split('.')
    node = config
    for parent in parents:
        node = node[parent]
    node.pop(key, None)
    if value is not None:
        node[key] = value
    file.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ('path', 'value', 'named'),
    [
        ('model_type', 'llama', 'model_type'),
        ('block_size', None, 'block_size is missing'),
        ('block_size', 0, 'block_size'),
        ('mask_token_id', None, 'mask_token_id is missing'),
        ('mask_token_id', 512, 'outside the vocabulary'),
        ('mask_token_id', 500, 'is 500, which is also image_token_id'),
        ('mask_token_id', 505, 'is 505, which is also mask_token_id'),
        ('eos_token_id', None, 'eos_token_id'),
        ('eos_token_id', 'stop', 'eos_token_id'),
        ('image_token_id', None, 'image_token_id'),
        ('text_config', None, 'text_config'),
        ('text_config.hidden_act', 'gelu', 'hidden_act'),
        ('text_config.attention_bias', True, 'attention_bias'),
        ('text_config.num_key_value_heads', 3, 'num_key_value_heads'),
        ('text_config.num_hidden_layers', '4', 'num_hidden_layers'),
        ('text_config.hidden_size', -64, 'hidden_size'),
        ('text_config.rope_scaling.mrope_section', [4, 2, 1], 'mrope_section'),
        ('text_config.rope_scaling.mrope_section', ['4', 2, 2], 'mrope_section'),
        ('text_config.rope_scaling.mrope_section', [12, -2, -2], 'mrope_section'),
        ('text_config.rope_scaling.rope_type', 'yarn', 'rope_type'),
        ('text_config.rope_theta', float('nan'), 'rope_theta is nan'),
        ('text_config.rms_norm_eps', -1.0, 'rms_norm_eps is -1.0'),
        ('text_config.rope_scaling.mrope_interleaved', False, 'mrope_interleaved'),
        ('text_config.sliding_window', 128, 'sliding_window'),
        ('text_config.num_experts', 8, 'text_config.num_experts'),
        ('vision_config.window_size', 112, 'vision_config.window_size'),
        ('vision_config.num_position_embeddings', 15, 'num_position_embeddings'),
        ('vision_config.deepstack_visual_indexes', [0, 9], 'deepstack_visual_indexes'),
        ('vision_config.out_hidden_size', 32, 'out_hidden_size'),
        ('dtype', 'int8', 'dtype'),
        ('quantization_config', {'bits': 4}, 'quantization_config'),
    ],
)
def test_a_config_that_asks_for_something_else_is_refused_by_name(path, value, named, tmp_path):
    folder = checkpoint('A_tied', tmp_path)
    change(folder, path, value)
    with pytest.raises(CheckpointError, match=named) as error:
        load_config(folder)
    assert 'config.json' in str(error.value)


@pytest.mark.parametrize('content', ('', '{', '[]', 'null', '[' * 100_000))
def test_a_file_that_is_no_json_object_is_refused_by_name(content, tmp_path):
    (tmp_path / 'config.json').write_text(content)
    with pytest.raises(CheckpointError, match=r'config\.json'):
        load_config(tmp_path)


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match='no such file'):
        load_config(tmp_path)


def test_block_fields_may_stand_in_generation_config(tmp_path):
    folder = checkpoint('A_tied', tmp_path)
    for key in ('block_size', 'mask_token_id', 'eos_token_id'):
        change(folder, key, None)
    (folder / 'generation_config.json').write_text(
        json.dumps(
            {'block_size': 16, 'mask_token_id': 9, 'eos_token_id': [5, 6], 'denoising_steps': 4}
        )
    )
    config = load_config(folder)
    assert (config.block_size, config.mask_token_id, config.denoising_steps) == (16, 9, 4)
    assert config.eos_token_ids == (5, 6)


@pytest.mark.parametrize(
    ('key', 'value', 'wanted'),
    (
        ('unmasking', 'runs', "'runs', wanted dynamic or leading or static or sequential"),
        ('confidence_threshold', 3.0, '3.0, wanted above 0 and at most 2'),
    ),
)
def test_decoding_that_does_not_exist_is_refused(tmp_path, key, value, wanted):
    folder = checkpoint('A_tied', tmp_path)
    change(folder, key, value)
    with pytest.raises(CheckpointError, match=f'{key} is {wanted}'):
        load_config(folder)


def test_an_autoregressive_checkpoint_has_blocks_of_one_token(tmp_path):
    folder = checkpoint('B_untied', tmp_path)
    for key in ('block_size', 'mask_token_id'):
        change(folder, key, None)
    change(folder, 'model_type', 'qwen3_vl')
    config = load_config(folder)
    assert (config.block_size, config.mask_token_id) == (1, None)


def test_a_checkpoint_written_by_transformers_is_understood(tmp_path):
    transformers = pytest.importorskip('transformers', reason='oracle of this test')
    config = transformers.Qwen3VLConfig(
        text_config={
            'vocab_size': 600,
            'hidden_size': 64,
            'intermediate_size': 96,
            'num_hidden_layers': 3,
            'num_attention_heads': 4,
            'num_key_value_heads': 2,
            'head_dim': 16,
            'eos_token_id': 505,
            'rope_parameters': {
                'rope_type': 'default',
                'rope_theta': 5e6,
                'mrope_interleaved': True,
                'mrope_section': [4, 2, 2],
            },
        },
        vision_config={
            'depth': 3,
            'hidden_size': 32,
            'intermediate_size': 64,
            'num_heads': 2,
            'out_hidden_size': 64,
            'num_position_embeddings': 16,
            'deepstack_visual_indexes': [0, 2],
        },
        image_token_id=500,
        video_token_id=501,
        vision_start_token_id=502,
        vision_end_token_id=503,
        tie_word_embeddings=True,
    )
    theirs = transformers.Qwen3VLForConditionalGeneration(config).to(torch.bfloat16)
    theirs.generation_config = transformers.GenerationConfig(
        do_sample=True, eos_token_id=[505, 509], pad_token_id=509, temperature=0.7, top_k=20
    )
    theirs.save_pretrained(tmp_path, max_shard_size='100KB')
    assert len(list(tmp_path.glob('*.safetensors'))) > 1
    mine = load_config(tmp_path)
    assert mine.text.rope_theta == 5e6
    assert mine.vision.deepstack_layers == (0, 2)
    assert mine.eos_token_ids == (505, 509)
    network = load_network(tmp_path, mine, dtype=torch.bfloat16, device=torch.device('cpu'))
    stored = theirs.state_dict()
    assert all(torch.equal(t, stored[name]) for name, t in network.state_dict().items())
