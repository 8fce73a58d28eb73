"""8-bit floats in an ONNX vision tower: quantise and dequantise around every linear layer.

Weights get one scale per output channel, from themselves. Inputs get one scale per layer, from
the largest value seen while encoding calibration images: a few dozen frames of the vehicle's own
cameras, of day and night, so that no layer meets values in traffic that it never saw here. Needs
a GPU with FP8 (compute capability 8.9 or more); onnxruntime computes the same on a CPU, slowly.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

LARGEST = 448.0  # of float8 e4m3
# The smallest normal float16. As an 8-bit float has an exponent of its own, a scale that is larger
# than it need be costs nothing.
SMALLEST_SCALE = 2.0**-14


def measure_inputs(file: Path, feeds: Iterable[Mapping[str, np.ndarray]]) -> dict[str, float]:
    """Return the largest absolute input of each linear layer over the feeds, by tensor name."""
    import onnx
    import onnxruntime

    model = onnx.load(os.fspath(file))
    names = sorted({node.input[0] for node in linear_layers(model)})
    for name in names:
        model.graph.output.append(onnx.ValueInfoProto(name=name))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    largest = dict.fromkeys(names, 0.0)
    count = 0
    for feed in feeds:
        for name, value in zip(names, session.run(names, feed), strict=True):
            largest[name] = max(largest[name], float(np.abs(value).max()))
        count += 1
    if not count:
        raise ValueError('no calibration image')
    return largest


def quantise(file: Path, target: Path, largest_inputs: Mapping[str, float]) -> int:
    """Write `file` with quantised linear layers to `target`; returns how many there are."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(os.fspath(file))
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    layers = linear_layers(model)
    before = {}  # node name -> nodes that go before it

    def constant(name: str, values, kind: int) -> str:
        values = np.asarray(values, np.float32)
        tensor = helper.make_tensor(name, kind, values.shape, values.flatten())
        model.graph.initializer.append(tensor)
        return name

    def pair(tensor: str, name: str, scale, kind: int, axis: int | None) -> tuple[list, str]:
        scale = np.asarray(scale, np.float32)
        scales = constant(f'{name}_scale', scale, kind)
        zero = constant(f'{name}_zero', np.zeros(scale.shape), TensorProto.FLOAT8E4M3FN)
        options = {} if axis is None else {'axis': axis}
        quantised, back = f'{name}_fp8', f'{name}_dequantised'
        return [
            helper.make_node(
                'QuantizeLinear', [tensor, scales, zero], [quantised], f'{name}_q', **options
            ),
            helper.make_node(
                'DequantizeLinear', [quantised, scales, zero], [back], f'{name}_dq', **options
            ),
        ], back

    done = {}  # an input that two layers share is quantised once
    for number, node in enumerate(layers):
        data, weight_name = node.input
        weight = numpy_helper.to_array(weights[weight_name]).astype(np.float32)  # [in, out]
        kind = weights[weight_name].data_type
        nodes = []
        if data not in done:
            scale = max(largest_inputs[data] / LARGEST, SMALLEST_SCALE)
            new, done[data] = pair(data, f'layer_{number}_input', scale, kind, None)
            nodes += new
        scale = np.maximum(np.abs(weight).max(axis=0) / LARGEST, SMALLEST_SCALE)
        new, back = pair(weight_name, f'layer_{number}_weight', scale, kind, 1)
        before[node.name] = nodes + new
        node.input[0], node.input[1] = done[data], back
    nodes = [new for node in model.graph.node for new in (*before.get(node.name, ()), node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, os.fspath(target), save_as_external_data=True, location=f'{target.name}.data')
    return len(layers)


def linear_layers(model) -> list:
    """Return the nodes that multiply with a weight, but for the patch embedding.

    That one sees raw pixels, costs little, and what it loses no later layer can bring back.
    """
    weights = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 2}
    nodes = [n for n in model.graph.node if n.op_type == 'MatMul' and n.input[1] in weights]
    return [node for node in nodes if node.input[0] != 'patches']
