"""Find the data files (msg/, config/, models/), installed or in the source tree."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def share_path(*parts: str) -> Path:
    """Return the path of the data file or folder `parts`, for example share_path('config').

    The source tree comes first; then share/wamdiff_ros of the prefix that this package is
    installed in, found by walking up, so that no environment variable is needed. Raises
    FileNotFoundError.
    """
    candidates = [_PACKAGE.parent.joinpath(*parts)]
    candidates += [parent.joinpath('share', 'wamdiff_ros', *parts) for parent in _PACKAGE.parents]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise FileNotFoundError(
        f'{"/".join(parts)}: not part of this installation; looked in {candidates[0]} and in '
        f'share/wamdiff_ros above {_PACKAGE}'
    )
