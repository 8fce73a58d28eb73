"""The command `wamdiff`: each subcommand is a module with `add_arguments` and `run`."""

import argparse
import sys
from importlib import import_module

from . import __version__

# Name: (module of this package, words). Modules import what is heavy only when they run.
COMMANDS = {
    'demo': ('demo', 'play a recording over DDS into a live planner and show what it plans'),
    'drive': ('simulation.drive', 'drive routes of the world closed loop and score them'),
    'doctor': ('doctor.command', 'check this machine, and say what to do'),
    'prebuild': ('runtime.prebuild', 'build the vision engine before the planner needs it'),
    'bag': ('make_bag', 'make recordings of images, videos or the world, without ROS'),
    'replay': ('replay.replay', 'plan over recordings, offline, and judge the plans'),
    'compare': ('evaluation.compare', 'compare two replay runs over the same recordings'),
    'report': ('evaluation.report', 'make one HTML page of one or two replay runs'),
    'bench': ('benchmark.bench', 'measure speed side by side: decoders, limits, costs'),
    'evaluate': ('evaluation.evaluate', 'judge checkpoints on held-out records'),
    'view': ('pictures.view', 'draw the plans of a recording as RViz shows them'),
    'data': ('training.data_command', 'generate, convert and show training data'),
    'train': ('training.train_command', 'train a checkpoint as a recipe says'),
}


def main(args: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    parser = argparse.ArgumentParser(
        prog='wamdiff', description='On-vehicle runtime for driving vision-language-action models.'
    )
    parser.add_argument('--version', action='version', version=f'wamdiff_ros {__version__}')
    subparsers = parser.add_subparsers(title='commands', metavar='COMMAND', required=True)
    for name, (path, words) in COMMANDS.items():
        module = import_module(f'.{path}', __package__)
        subparser = subparsers.add_parser(
            name,
            help=words,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    arguments = parser.parse_args(args)
    try:
        return arguments.run(arguments)
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130


if __name__ == '__main__':
    sys.exit(main())
