"""What the HTML pages share: one file each that needs nothing else, no network and no fonts.

Whatever comes from recordings and models is escaped.
"""

import base64
from collections.abc import Iterable, Sequence
from html import escape

import cv2
import numpy as np

from .distribution import Distribution

BLUE, ORANGE, GREEN = '#2f81f7', '#db6d28', '#238636'  # readable on black and on white
# A page may show what is in it and nothing else.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; margin: .5rem 0; } h2 { font-size: 1.1rem; margin: 1.5rem 0 .5rem; }
.note { background: #bb800933; border-left: 4px solid #bb8009; padding: .6rem .8rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem; }
.card { background: var(--soft); border-radius: 8px; padding: .6rem .8rem; }
.card b { display: block; font-size: 1.4rem; } .card span { font-size: .85rem; opacity: .8; }
img, svg { max-width: 100%; height: auto; display: block; border-radius: 6px; }
svg text { fill: currentColor; font: 12px system-ui, sans-serif; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { font-weight: 600; min-width: 9rem; }
.bars th { min-width: 6rem; } .bars td:last-child { white-space: nowrap; width: 1%; }
.bars td:nth-child(2) { width: 60%; vertical-align: middle; }
.bar { position: relative; height: 1.1rem; background: var(--soft); border-radius: 3px; }
.bar i { position: absolute; inset: 0 auto 0 0; border-radius: 3px; background: #2f81f755; }
.bar i + i { background: #2f81f7; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px;
  margin: 0 .3em 0 1em; }
"""


def document(title: str, body: Iterable[str], script: str = '', style: str = '') -> str:
    """Return the page; `title` is text, `body` are pieces of HTML."""
    return '\n'.join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            # Else a browser asks for one beside the page.
            '<link rel="icon" href="data:,">',
            f'<title>{escape(title)}</title><style>{STYLE}{style}</style>',
            f'<h1>{escape(title)}</h1>',
            *body,
            *([f'<script>{script}</script>'] if script else []),
            '</html>\n',
        ]
    )


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Return a table of (name, value), both text."""
    cells = [f'<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in rows]
    return '\n'.join(['<table>', *cells, '</table>'])


def cards(entries: Iterable[tuple[str, str]]) -> str:
    """Return large values with their names, (value, name), both text."""
    shown = [
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name in entries
    ]
    return '\n'.join(['<div class="cards">', *shown, '</div>'])


def stage_bars(stages: Sequence[tuple[str, Distribution]]) -> str:
    """Return a bar per stage: p50 dark, p95 light, in ms."""
    longest = max((stage.p95 for _, stage in stages), default=0) or 1.0
    rows = [
        f'<tr><th>{escape(name)}</th><td><div class="bar">'
        f'<i style="width:{100 * stage.p95 / longest:.1f}%"></i>'
        f'<i style="width:{100 * stage.p50 / longest:.1f}%"></i></div></td>'
        f'<td>{stage.p50:.1f} / {stage.p95:.1f}</td></tr>'
        for name, stage in stages
    ]
    return '\n'.join(['<table class="bars">', *rows, '</table>'])


def image_url(rgb: np.ndarray, quality: int = 82) -> str:
    """Return a picture, uint8 [height, width, 3], as the address of a JPEG."""
    bgr = cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)
    _, jpeg = cv2.imencode('.jpg', bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return 'data:image/jpeg;base64,' + base64.b64encode(jpeg).decode('ascii')
