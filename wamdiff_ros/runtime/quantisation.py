"""Weights in 8 or 4 bits, part by part: language tower, vision tower, head.

torchao does it, but for int8_dynamic on a CPU, where its eager kernels lose what the bits win
(see int8_linear). What has no kernel on a device is refused with the reason. The embedding stays
as it is: a tied head gets a matrix of its own.
"""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from ..model.network import Network
from ..parameters import QUANTISATIONS
from .int8_linear import Int8Linear
from .options import EngineOptions

if TYPE_CHECKING:
    from torchao.core.config import AOBaseConfig

GROUP = 64  # weights that share a scale, where they have 4 bits


class QuantisationError(ValueError):
    """A quantisation cannot run here; the message says why and what would."""


@dataclass(frozen=True)
class Quantisation:
    """What is done to each part; one of QUANTISATIONS."""

    language: str = 'none'  # the projections of the language tower
    vision: str = 'none'  # the projections of the vision tower, mergers included
    head: str = 'none'  # hidden states to logits

    def __post_init__(self):
        for part in fields(self):
            method = getattr(self, part.name)
            if method not in QUANTISATIONS:
                raise QuantisationError(
                    f'{part.name}: {method!r} is not one of {", ".join(QUANTISATIONS)}'
                )

    def __str__(self) -> str:
        """Name what is quantised, '' for nothing."""
        methods = {part.name: getattr(self, part.name) for part in fields(self)}
        if len(set(methods.values())) == 1 and self.language != 'none':
            return self.language
        return ' '.join(f'{part}={how}' for part, how in methods.items() if how != 'none')

    @classmethod
    def parse(cls, text: str) -> 'Quantisation':
        """Read `METHOD` for all parts, or `part=METHOD,part=METHOD`; raises QuantisationError."""
        if '=' not in text:
            return cls(text, text, text)
        known = {part.name for part in fields(cls)}
        values = {}
        for entry in text.split(','):
            part, _, method = entry.partition('=')
            if part not in known:
                raise QuantisationError(
                    f'{text!r}: {part!r} is no part; wanted {", ".join(sorted(known))}'
                )
            values[part] = method
        return cls(**values)


def options_for(quantisation: Quantisation, options: EngineOptions) -> EngineOptions:
    """Return the options under which a quantised network runs.

    Fused weights are float matrices, so a quantised language tower goes without them; and in w4a8
    torchao cannot be given no rows at all, as the last layer is when nobody reads them.
    """
    if quantisation.language == 'none':
        return options
    rows = options.last_rows and quantisation.language != 'w4a8'
    return replace(options, fused_weights=False, last_rows=rows)


def quantise(network: Network, quantisation: Quantisation) -> None:
    """Quantise the network's parts in place; raises QuantisationError."""
    if quantisation.language != 'none':
        _quantise_linears(network.text.layers, 'language', quantisation.language)
    if quantisation.vision != 'none':
        _quantise_linears(network.vision, 'vision', quantisation.vision)
    if quantisation.head != 'none':
        embedding = network.text.embed_tokens.weight
        head = nn.Linear(embedding.shape[1], embedding.shape[0], bias=False, device='meta')
        head.weight = embedding if network.lm_head is None else network.lm_head.weight
        network.lm_head = nn.Sequential(head)  # a parent, so that it can be replaced as others are
        _quantise_linears(network.lm_head, 'head', quantisation.head)
        network.lm_head = network.lm_head[0]
    network.quantised = str(quantisation)


def _quantise_linears(part: nn.Module, name: str, method: str) -> None:
    linears = {
        place: module for place, module in part.named_modules() if isinstance(module, nn.Linear)
    }
    for place, linear in linears.items():
        _check(f'{name} {place}', method, linear)
    if method == 'int8_dynamic' and next(iter(linears.values())).weight.device.type == 'cpu':
        for place, linear in linears.items():
            parent, _, child = place.rpartition('.')
            setattr(part.get_submodule(parent), child, Int8Linear(linear))
        return
    try:
        from torchao.quantization import quantize_
    except ImportError as error:
        raise QuantisationError(
            f'{name}: {method} needs torchao: pip install -r requirements/quantisation.txt '
            f'({error})'
        ) from None
    device = next(iter(linears.values())).weight.device
    quantize_(part, _torchao_config(method, device))


def _check(where: str, method: str, linear: nn.Linear) -> None:
    """Refuse what has no kernel."""
    device, dtype = linear.weight.device.type, linear.weight.dtype
    four_bits = method in ('int4_weight_only', 'w4a8')
    if four_bits and linear.in_features % GROUP:
        raise QuantisationError(
            f'{where}: {linear.in_features} inputs are no multiple of {GROUP}, the weights that '
            f'share a scale in {method}; take an int8 method for this part'
        )
    if device == 'cpu' and method == 'int8_dynamic' and not Int8Linear.available():
        raise QuantisationError(
            f'{where}: int8_dynamic on a CPU needs x86-64 with VNNI and a torch with oneDNN; '
            'take int8_weight_only'
        )
    if device == 'cpu' and dtype == torch.float16:
        raise QuantisationError(
            f'{where}: there are no quantised kernels for float16 on a CPU; take dtype float32 or '
            'bfloat16'
        )
    if device != 'cpu' and method == 'int4_weight_only' and dtype != torch.bfloat16:
        raise QuantisationError(
            f'{where}: the int4 kernel of GPUs takes bfloat16, not {dtype}; take dtype bfloat16'
        )
    if device != 'cpu' and method == 'w4a8':
        raise QuantisationError(
            f'{where}: torchao has no kernel for 4-bit weights with 8-bit integer activations on '
            'a GPU; take int4_weight_only or int8_dynamic'
        )


def _torchao_config(method: str, device: torch.device) -> 'AOBaseConfig':
    from torchao.quantization import (
        Int4WeightOnlyConfig,
        Int8DynamicActivationInt8WeightConfig,
        Int8DynamicActivationIntxWeightConfig,
        Int8WeightOnlyConfig,
        IntxWeightOnlyConfig,
        PerGroup,
    )

    if method == 'int8_weight_only':
        return Int8WeightOnlyConfig()
    if method == 'int8_dynamic':
        return Int8DynamicActivationInt8WeightConfig()
    if method == 'w4a8':
        return Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4, weight_granularity=PerGroup(GROUP)
        )
    if device.type == 'cpu':
        # The values of 4-bit weights, a byte each: shows what 4 bits cost, not what they save.
        return IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(GROUP))
    return Int4WeightOnlyConfig(group_size=GROUP, int4_packing_format='tile_packed_to_4d')
