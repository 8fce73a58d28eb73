"""As much of TensorRT's Python interface as is used, computing with onnxruntime on the CPU.

It insists on the order and the shapes that TensorRT insists on. What it cannot show: whether
TensorRT takes the file, what it computes, and how streams overlap.
"""

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import onnxruntime
import torch

__version__ = '11.4.0.106'
engines = []  # what was built: (onnxruntime session, limits of the inputs)


class Logger:
    WARNING = 1

    def __init__(self, severity):
        assert severity == self.WARNING


class NetworkDefinitionCreationFlag:
    STRONGLY_TYPED = 1


class MemoryPoolType:
    WORKSPACE = 0


class IProgressMonitor:
    def __init__(self):
        pass


class Builder:
    def __init__(self, logger):
        assert isinstance(logger, Logger)

    def create_network(self, flags):
        assert flags == 1 << NetworkDefinitionCreationFlag.STRONGLY_TYPED
        return SimpleNamespace(session=None)

    def create_builder_config(self):
        config = SimpleNamespace(limits={}, profiles=[], progress_monitor=None)
        config.set_memory_pool_limit = config.limits.__setitem__
        config.add_optimization_profile = config.profiles.append
        return config

    def create_optimization_profile(self):
        shapes = {}

        def set_shape(name, least, usual, most):
            assert all(a <= b <= c for a, b, c in zip(least, usual, most, strict=True))
            shapes[name] = (least, most)

        return SimpleNamespace(shapes=shapes, set_shape=set_shape)

    def build_serialized_network(self, network, config):
        (profile,) = config.profiles
        config.progress_monitor.phase_start('building', None, 2)
        for step in range(2):
            if not config.progress_monitor.step_complete('building', step):
                return None
        config.progress_monitor.phase_finish('building')
        engines.append((network.session, profile.shapes))
        return str(len(engines) - 1).encode()


class OnnxParser:
    def __init__(self, network, logger):
        self._network, self._errors = network, []
        self.num_errors = 0

    def parse_from_file(self, path):
        try:
            self._network.session = onnxruntime.InferenceSession(path)
        except Exception as error:  # whatever it is, TensorRT would list it
            self._errors, self.num_errors = [str(error)], 1
            return False
        return True

    def get_error(self, index):
        return self._errors[index]


class Runtime:
    def __init__(self, logger):
        assert isinstance(logger, Logger)

    def deserialize_cuda_engine(self, engine):
        if not engine.isdigit():
            return None
        session, shapes = engines[int(engine)]
        return SimpleNamespace(create_execution_context=lambda: Context(session, shapes))


class Context:
    def __init__(self, session, shapes):
        self._session, self._limits = session, shapes
        self._shapes, self._addresses = {}, {}

    def set_input_shape(self, name, shape):
        least, most = self._limits[name]
        fits = all(a <= s <= b for a, s, b in zip(least, shape, most, strict=True))
        if fits:
            self._shapes[name] = shape
        return fits

    def set_tensor_address(self, name, address):
        assert address
        self._addresses[name] = address

    def execute_async_v3(self, stream):
        assert stream == Stream.cuda_stream, 'not the default stream'
        feed = {}
        for value in self._session.get_inputs():
            kind = np.float16 if value.type == 'tensor(float16)' else np.float32
            feed[value.name] = _array(self._addresses[value.name], self._shapes[value.name], kind)
        for value, out in zip(
            self._session.get_outputs(), self._session.run(None, feed), strict=True
        ):
            _array(self._addresses[value.name], out.shape, out.dtype)[...] = out
        return True


def _array(address, shape, kind):
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), kind).reshape(shape)


class Stream:
    """Stands in for torch.cuda.Stream: on a CPU everything waits for everything."""

    cuda_stream = 77

    def __init__(self, device=None):
        pass

    def wait_stream(self, other):
        assert isinstance(other, Stream)


def install(monkeypatch):
    """Let this machine look like one with a GPU and TensorRT."""
    monkeypatch.setitem(sys.modules, 'tensorrt', sys.modules[__name__])
    engines.clear()
    cuda = torch.cuda
    for name, value in {
        'is_available': lambda: True,
        'get_device_name': lambda: 'Fake',
        'get_device_capability': lambda: (8, 7),
        'Stream': Stream,
        'current_stream': lambda device=None: Stream(),
        'synchronize': lambda: None,
    }.items():
        monkeypatch.setattr(cuda, name, value)
