"""The planner's parameters on a ROS node: declared from `Parameters`, checked by `Parameters`.

A value that is refused never stops the node from starting: it is remembered, `read` raises its
sentence at every configure, and setting a good value mends it. Holds no default of its own.
"""

from collections.abc import Callable
from typing import Any

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.exceptions import InvalidParameterValueException
from rclpy.node import Node
from rclpy.parameter import Parameter

from ..camera_parameters import CAMERA_DESCRIPTIONS, TRANSPORTS, camera_defaults
from ..parameter_values import ParameterError
from ..parameters import Parameters, ros_fields

_WHEN = 'Takes effect at configure; can be set while the node is unconfigured.'
# Declared by rclpy or by the node itself, not part of `Parameters`.
_OTHERS = ('use_sim_time', 'autostart', 'start_type_description_service')
_AUTOSTART = ParameterDescriptor(
    description='Configure and activate at start-up, without a lifecycle manager.',
    dynamic_typing=True,
    read_only=True,
)


class ParameterServer:
    """Declares the parameters on `node`, guards them, and reads them as one `Parameters`.

    `refusal()` says why nothing may be set now, or ''.
    """

    def __init__(self, node: Node, refusal: Callable[[], str]) -> None:
        self._node = node
        self._refusal = refusal
        self._refused: dict[str, Any] = {}  # given at the start, outside the declared range
        self._cameras: tuple[str, ...] = ()
        # From YAML and the command line, misspelt names included: rclpy has no public way to ask.
        # An empty list arrives as None.
        self._given = {
            name: [] if parameter.value is None else parameter.value
            for name, parameter in node._parameter_overrides.items()
        }
        for field in ros_fields():
            # ROS has lists, not tuples.
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            self._declare(field.name, default, _descriptor(field.metadata, type(default)))
        self._declare_cameras()
        self._declare('autostart', False, _AUTOSTART)
        node.add_on_set_parameters_callback(self._on_set)

    def read(self) -> Parameters:
        """Return all parameters, checked; raises ParameterError."""
        return Parameters.from_mapping(self._values() | self._refused)

    @property
    def autostart(self) -> bool:
        """Whether the node is to configure and activate itself."""
        return self._node.get_parameter('autostart').value is True

    def _values(self) -> dict[str, Any]:
        """Return all that is set, and all that was given for names that do not exist."""
        declared = self._node.get_parameters_by_prefix('')
        values = self._given | {name: parameter.value for name, parameter in declared.items()}
        return {name: value for name, value in values.items() if _is_ours(name)}

    def _declare(self, name: str, default: Any, descriptor: ParameterDescriptor) -> None:
        value = self._given.get(name, default)
        try:
            self._node.declare_parameter(name, value, descriptor, ignore_override=True)
        except InvalidParameterValueException:
            self._refused[name] = value
            self._node.declare_parameter(name, default, descriptor, ignore_override=True)

    def _declare_cameras(self) -> None:
        """Give each camera of the list its own parameters, and take those of the others away."""
        names = _names(self._node.get_parameter('cameras').value)
        for name in set(self._cameras) - set(names):
            for parameter in camera_defaults(name):
                self._node.undeclare_parameter(parameter)
                self._given.pop(parameter, None)
        for name in names:
            if name not in self._cameras:
                for parameter, default in camera_defaults(name).items():
                    key = parameter.rpartition('.')[2]
                    metadata = {'description': CAMERA_DESCRIPTIONS[key]}
                    if key == 'transport':
                        metadata['choices'] = TRANSPORTS
                    self._declare(parameter, default, _descriptor(metadata, type(default)))
        self._cameras = names

    def _on_set(self, parameters: list[Parameter]) -> SetParametersResult:
        new = {p.name: p.value for p in parameters if _is_ours(p.name)}
        if not new:
            return SetParametersResult(successful=True)
        if reason := self._refusal():
            return SetParametersResult(successful=False, reason=f'{", ".join(new)}: {reason}')
        before = self._values() | self._refused
        values = before | new
        if 'cameras' in new:
            # The parameters of cameras that are no longer listed go with them.
            for name in set(self._cameras) - set(_names(new['cameras'])):
                for parameter in camera_defaults(name):
                    values.pop(parameter, None)
        complaint = _complaint(values)
        # Several values given at the start may be bad: mending them one by one must be possible.
        about_another = complaint.partition(':')[0] not in new and _complaint(before)
        if complaint and not about_another:
            return SetParametersResult(successful=False, reason=complaint)
        for name in new:
            self._refused.pop(name, None)
        if 'cameras' in new and self._node.executor is not None:
            self._node.executor.create_task(self._declare_cameras)  # once the list is set
        return SetParametersResult(successful=True)


def _is_ours(name: str) -> bool:
    return name not in _OTHERS and not name.startswith('qos_overrides.')


def _complaint(values: dict[str, Any]) -> str:
    try:
        Parameters.from_mapping(values)
    except ParameterError as error:
        return str(error)
    return ''


def _names(cameras: Any) -> tuple[str, ...]:
    """Return the usable names of the list; `read` refuses the others, with the reason."""
    if not isinstance(cameras, (list, tuple)):
        return ()
    names = (name for name in cameras if isinstance(name, str) and name.isidentifier())
    return tuple(dict.fromkeys(names))


def _descriptor(metadata, kind: type) -> ParameterDescriptor:
    # dynamic_typing, because YAML and the command line write 20 for 20.0; Parameters checks types.
    descriptor = ParameterDescriptor(
        description=metadata['description'], additional_constraints=_WHEN, dynamic_typing=True
    )
    if metadata.get('choices'):
        descriptor.additional_constraints = f'One of {", ".join(metadata["choices"])}. {_WHEN}'
    low, high = metadata.get('low'), metadata.get('high')
    if low is not None and kind is float:
        descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
    elif low is not None:
        descriptor.integer_range = [IntegerRange(from_value=low, to_value=high)]
    return descriptor
