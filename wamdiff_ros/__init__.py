"""On-vehicle runtime for driving vision-language-action models, as a ROS 2 package."""

from pkgutil import extend_path

# The generated messages (wamdiff_ros.msg) are installed as a package of the same name: joining
# the two paths lets the source tree and an installed build be imported together.
__path__ = extend_path(__path__, __name__)

__version__ = '0.1.0'
