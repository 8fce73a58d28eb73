"""After which errors of a GPU only a new process can compute again.

Free of torch: such an error is known by the words of the CUDA runtime in it. They are the same in
torch.AcceleratorError, in the RuntimeError that torch raised before it had that type (as JetPack's
builds do), and in what TensorRT and FlashInfer say.
"""

# What cudaGetErrorString says for the errors of which the manual of CUDA says that the process
# must be terminated and relaunched (700, 702, 710, 714 to 719), for a context that is gone (709),
# and for memory that is (214). Others, out of memory above all, may pass.
LASTING = (
    'an illegal memory access was encountered',
    'the launch timed out and was terminated',
    'context is destroyed',
    'device-side assert triggered',
    'hardware stack error',
    'an illegal instruction was encountered',
    'misaligned address',
    'operation not supported on global/shared address space',
    'invalid program counter',
    'unspecified launch failure',
    'uncorrectable ECC error encountered',
)


def device_is_lost(error: BaseException | None) -> bool:
    """Whether `error`, or what it was raised from, has left CUDA unusable in this process."""
    while error is not None:
        text = str(error)
        if 'cuda' in text.lower() and any(words in text for words in LASTING):
            return True
        error = error.__cause__
    return False
