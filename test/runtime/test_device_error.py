"""Which errors end the use of a GPU in a process."""

import pytest

from wamdiff_ros.runtime.device_error import LASTING, device_is_lost

# As torch 2.13 writes it.
ILLEGAL = (
    'CUDA error: an illegal memory access was encountered\n'
    "Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/cuda-runtime-api/"
    'group__CUDART__TYPES.html for more information.\n'
    'CUDA kernel errors might be asynchronously reported at some other API call, so the '
    'stacktrace below might be incorrect.\n'
)


@pytest.mark.parametrize('words', LASTING)
def test_what_leaves_the_process_unusable_is_known_by_the_words_of_cuda(words):
    assert device_is_lost(RuntimeError(f'CUDA error: {words}'))


def test_torchs_own_error_is_known():
    torch = pytest.importorskip('torch')
    kind = getattr(torch, 'AcceleratorError', RuntimeError)  # older ones have no type for it
    assert device_is_lost(kind(ILLEGAL))


def test_what_tensorrt_says_is_known():
    assert device_is_lost(
        RuntimeError('Error Code 1: Cuda Runtime (an illegal memory access was encountered)')
    )


@pytest.mark.parametrize(
    'text',
    [
        'CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 7.4 GiB',
        'CUDA error: out of memory',
        'CUDA error: invalid argument',
        'CUDA error: too many resources requested for launch',
        'CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`',
        'misaligned address',  # of somebody else
        '',
    ],
)
def test_what_may_pass_is_not_taken_for_the_end(text):
    assert not device_is_lost(RuntimeError(text))


def test_the_error_that_another_was_raised_from_counts():
    error = ValueError('the picture could not be encoded')
    error.__cause__ = RuntimeError(ILLEGAL)
    assert device_is_lost(error)
