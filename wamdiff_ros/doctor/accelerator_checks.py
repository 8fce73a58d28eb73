"""torch and what makes it faster; each runs one tiny kernel, or says why it was not tried."""

from .finding import Finding, fail, ok, warn
from .surroundings import Reply, Surroundings

GPU_DRIVER = '/proc/driver/nvidia/version'
JETSON = '/etc/nv_tegra_release'
_CUDA = 'import torch\nif not torch.cuda.is_available(): raise SystemExit("no CUDA device")\n'


def torch(here: Surroundings) -> Finding:
    """Torch loads and multiplies."""
    reply = here.ask(
        'import torch\n'
        'a = torch.ones(8, 8)\n'
        'assert float((a @ a).sum()) == 512\n'
        "reply['version'], reply['threads'] = torch.__version__, torch.get_num_threads()\n"
        "reply['simd'] = torch.backends.cpu.get_cpu_capability()"
    )
    if reply.error:
        return fail('torch', reply.error, 'pip install -r requirements/runtime.txt')
    values = reply.values
    return ok('torch', f'{values["version"]}, {values["threads"]} threads, {values["simd"]}')


def cuda(here: Surroundings) -> Finding:
    """A GPU that is there is used, and torch has kernels for it."""
    driver = here.exists(GPU_DRIVER) or here.exists(JETSON)
    reply = here.ask(
        f'{_CUDA}'
        "reply['name'] = torch.cuda.get_device_name()\n"
        "reply['capability'] = list(torch.cuda.get_device_capability())\n"
        "reply['architectures'] = torch.cuda.get_arch_list()\n"
        "reply['version'] = torch.version.cuda\n"
        "a = torch.ones(8, 8, device='cuda')\n"
        'try:\n'
        "    reply['sum'] = float((a @ a).sum())\n"
        'except RuntimeError as error:\n'
        "    reply['kernel_error'] = str(error).splitlines()[0]\n"
    )
    if reply.error:
        if driver:
            return warn(
                'cuda', f'there is an NVIDIA driver, but torch uses no GPU: {reply.error}',
                "install torch's CUDA build (docs/dependencies.md); on a Jetson, NVIDIA's own "
                'wheel for this JetPack',
            )  # fmt: skip
        return ok('cuda', 'no GPU; the network runs on the CPU')
    values = reply.values
    sm = 'sm_{}{}'.format(*values['capability'])
    if 'kernel_error' in values or values.get('sum') != 512:
        has = ', '.join(values['architectures'])
        return fail(
            'cuda', f'{values["name"]} is {sm}, torch has kernels for {has}: '
            f'{values.get("kernel_error", "a wrong sum")}',
            f'install a torch that was built for {sm}, or set device: cpu',
        )  # fmt: skip
    return ok('cuda', f'{values["version"]}, {values["name"]} ({sm}), multiplies')


def flashinfer(here: Surroundings) -> Finding:
    """FlashInfer compiles or finds a kernel and runs it."""
    if not here.has_module('flashinfer'):
        return ok('flashinfer', 'not installed')
    version = here.version('flashinfer-python')
    reply = here.ask(
        f'{_CUDA}'
        'import flashinfer\n'
        "x = torch.ones(2, 128, dtype=torch.bfloat16, device='cuda')\n"
        "w = torch.ones(128, dtype=torch.bfloat16, device='cuda')\n"
        "reply['ones'] = bool((flashinfer.norm.rmsnorm(x, w) == 1).all())",
        timeout_s=600.0,
    )
    if _no_gpu(reply):
        return ok('flashinfer', f'{version}, not tried: no GPU')
    if reply.error or not reply.values.get('ones'):
        lacking = [tool for tool in ('nvcc', 'ninja') if here.which(tool) is None]
        without = f' (without {" and ".join(lacking)})' if lacking else ''
        return fail(
            'flashinfer', f'{version}: {reply.error or "a wrong result"}{without}',
            'kernels are compiled at first use, which takes nvcc of the CUDA of torch and ninja: '
            'install both, or the package flashinfer-jit-cache of the same version',
        )  # fmt: skip
    return ok('flashinfer', f'{version}, a kernel ran')


def tensorrt(here: Surroundings) -> Finding:
    """TensorRT makes a builder, which takes a GPU of a supported architecture."""
    if not here.has_module('tensorrt'):
        return ok('tensorrt', 'not installed')
    reply = here.ask(
        f'{_CUDA}'
        'import tensorrt\n'
        "reply['version'] = tensorrt.__version__\n"
        'builder = tensorrt.Builder(tensorrt.Logger(tensorrt.Logger.ERROR))\n'
        'network = builder.create_network(0)\n'
        "x = network.add_input('x', tensorrt.float32, (1, 8))\n"
        'network.mark_output(network.add_identity(x).get_output(0))\n'
        'plan = builder.build_serialized_network(network, builder.create_builder_config())\n'
        "reply['built'] = plan is not None",
        timeout_s=600.0,
    )
    if _no_gpu(reply):
        return ok('tensorrt', f'{here.version("tensorrt")}, not tried: no GPU')
    if reply.error or not reply.values.get('built'):
        return fail(
            'tensorrt', reply.error or 'builds no engine',
            'take the TensorRT of this JetPack or of the CUDA of torch, or leave vision to torch',
        )  # fmt: skip
    return ok('tensorrt', f'{reply.values["version"]}, builds an engine')


def torchao(here: Surroundings) -> Finding:
    """Quantisation works, where it is installed."""
    if not here.has_module('torchao'):
        return ok('torchao', 'not installed: no quantisation')
    reply = here.ask(
        'import torch\n'
        'from torchao.quantization import Int8WeightOnlyConfig, quantize_\n'
        'layer = torch.nn.Linear(32, 32)\n'
        'quantize_(layer, Int8WeightOnlyConfig())\n'
        'with torch.inference_mode(): layer(torch.ones(1, 32))'
    )
    if reply.error:
        return fail(
            'torchao', f'{here.version("torchao")}: {reply.error}',
            'pip install -r requirements/quantisation.txt, or set no quantisation',
        )  # fmt: skip
    return ok('torchao', f'{here.version("torchao")}, quantises')


def _no_gpu(reply: Reply) -> bool:
    return reply.error == 'no CUDA device'


CHECKS = (torch, cuda, flashinfer, tensorrt, torchao)
