"""What a single parameter may be: its declaration, and a check of a value against it."""

from dataclasses import field
from typing import Any


class ParameterError(ValueError):
    """A parameter was refused; the message says which, why, and what would be accepted."""


def parameter(default: Any, description: str, *, low=None, high=None, choices=None) -> Any:
    """Declare a dataclass field with what a ROS ParameterDescriptor needs to know."""
    return field(
        default=default,
        metadata={'description': description, 'low': low, 'high': high, 'choices': choices},
    )


def checked(name: str, value: Any, spec) -> Any:
    """Return `value` in the type of the field `spec`, or raise ParameterError."""
    if isinstance(spec.default, tuple):
        return _camera_names(name, value)
    wanted = type(spec.default)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not wanted:
        raise ParameterError(
            f'{name}: {value!r} is a {type(value).__name__}, wanted a {wanted.__name__}'
        )
    low, high, choices = (spec.metadata[key] for key in ('low', 'high', 'choices'))
    # A NaN is outside every range, which `not (low <= value)` says and `value < low` does not.
    if low is not None and not low <= value <= high:
        raise ParameterError(f'{name}: {value!r} is outside {low} … {high}')
    if choices is not None and value not in choices:
        raise ParameterError(f'{name}: {value!r} is not one of {", ".join(choices)}')
    return value


def _camera_names(name: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, (list, tuple))
    if not is_list or not all(isinstance(entry, str) for entry in value):
        raise ParameterError(f'{name}: {value!r} is not a list of names, wanted e.g. [front]')
    cameras = tuple(value)
    if not cameras:
        raise ParameterError(f'{name}: the list is empty, name at least one camera')
    for camera in cameras:
        if not camera.isidentifier():
            raise ParameterError(f'{name}: {camera!r} is not a name (letters, digits, _)')
    if len(set(cameras)) < len(cameras):
        raise ParameterError(f'{name}: {list(cameras)} names a camera twice')
    return cameras
