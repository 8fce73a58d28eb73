"""Forwards over static buffers: captured as CUDA graphs on a GPU, compiled on a CPU.

A function is captured once per name and shapes of its inputs. A call copies the inputs into the
buffers of that capture, runs it, and returns its output buffers, which the next call with the same
shapes overwrites. Whatever else the function touches (weights, the KV cache) is captured by its
address; when that changes, `clear` what depends on it. All calls come from one thread.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch

WARM_UPS = 3  # before a capture: libraries choose kernels and allocate workspaces in first calls

# Tensors in, a tensor or a tuple of them out; no synchronisation with the host in between.
Function = Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]


@dataclass(frozen=True, eq=False)
class _Capture:
    inputs: Sequence[torch.Tensor]
    run: Callable[[], torch.Tensor | tuple[torch.Tensor, ...]]


def compiled(function: Function) -> Function:
    """Compile for the shapes of the first call; needs a C++ compiler on a CPU."""
    return torch.compile(function, fullgraph=True, dynamic=False)


class GraphRunner:
    """Captures functions and runs them; see the module."""

    def __init__(
        self,
        device: torch.device,
        compiler: Callable[[Function], Function] = compiled,
        progress: Callable[[str], None] = lambda text: None,
    ):
        """`compiler` is what a CPU runs in place of a captured graph."""
        self._device = device
        self._compiler = compiler
        self._progress = progress
        self.captures = 0
        self._captured: dict[Hashable, _Capture] = {}
        # Graphs never run side by side, so they may use the same memory one after another.
        self._pool = torch.cuda.graph_pool_handle() if device.type == 'cuda' else None

    def clear(self, *stages: str) -> None:
        """Drop the captures of these stages, the first words of their names."""
        for key in [key for key in self._captured if key[0][0] in stages]:
            del self._captured[key]

    @torch.inference_mode()
    def __call__(self, name: tuple[Hashable, ...], function: Function, *inputs: torch.Tensor):
        """Run `function` on inputs; equal names with equal shapes must mean equal functions.

        A name begins with its stage.
        """
        key = (name, *((x.shape, x.dtype) for x in inputs))
        capture = self._captured.get(key)
        if capture is None:
            largest = max(inputs, key=torch.numel)
            self._progress(f'capturing {name[0]}, {"x".join(map(str, largest.shape))}')
            on_gpu = self._device.type == 'cuda'
            capture = (self._capture if on_gpu else self._compile)(function, inputs)
            self._captured[key] = capture
            self.captures += 1
        for buffer, x in zip(capture.inputs, inputs, strict=True):
            buffer.copy_(x)
        return capture.run()

    def _compile(self, function: Function, inputs: Sequence[torch.Tensor]) -> _Capture:
        buffers = [x.clone() for x in inputs]
        function = self._compiler(function)
        return _Capture(buffers, lambda: function(*buffers))

    def _capture(self, function: Function, inputs: Sequence[torch.Tensor]) -> _Capture:
        buffers = [x.clone() for x in inputs]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                function(*buffers)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=stream):
            outputs = function(*buffers)

        def run():
            graph.replay()
            return outputs

        return _Capture(buffers, run)
