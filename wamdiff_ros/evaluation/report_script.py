"""How the report looks beyond what all pages share, and what its script does: sort and search."""

STYLE = """
body { max-width: 75rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; }
.scroll table { font-size: .85rem; } .scroll th, .scroll td { padding: .3rem .6rem;
  white-space: nowrap; min-width: 0; overflow-wrap: normal; }
.scroll td:first-child { white-space: normal; min-width: 6rem; overflow-wrap: anywhere; }
.scroll :is(th, td):first-child { position: sticky; left: 0; background: Canvas; }
.bars { max-width: 40rem; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid #2f81f7; }
th[aria-sort=ascending] button::after { content: " ▲"; }
th[aria-sort=descending] button::after { content: " ▼"; }
input[type=search] { font: inherit; width: 100%; max-width: 22rem; box-sizing: border-box;
  padding: .4rem .6rem; margin: .4rem 0; border: 1px solid var(--line); border-radius: 8px; }
.spark { width: 100px; height: 24px; max-width: none; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr));
  gap: 1rem; } .plot { width: 100%; } svg text { font-size: 13px; }
.cases { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(21rem, 100%), 1fr));
  gap: 1rem; } .case { background: var(--soft); border-radius: 8px; padding: .6rem; min-width: 0; }
.case p { margin: .3rem 0; overflow-wrap: anywhere; font-size: .85rem; }
.case .views { display: grid; grid-template-columns: 1fr; gap: .4rem; }
.case svg { width: 100%; }
summary { cursor: pointer; padding: .3rem 0; font-weight: 600; }
.better { color: #238636; } .worse { color: #cf222e; }
"""

SCRIPT = """
const table = document.querySelector('#bags');
const body = table.tBodies[0], search = document.querySelector('#search');
const heads = [...table.tHead.rows[0].cells];
function key(row, place) {
  const cell = row.cells[place], number = cell.dataset.v;
  return number === undefined ? cell.textContent : number === '' ? null : Number(number);
}
heads.forEach((head, place) => {
  const button = head.querySelector('button');
  if (!button) return;
  button.addEventListener('click', () => {
    const up = head.getAttribute('aria-sort') !== 'ascending';
    heads.forEach(other => other.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    const rows = [...body.rows].map(row => [key(row, place), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      const order = typeof a === 'number' ? a - b : a.localeCompare(b);
      return up ? order : -order;
    });
    body.append(...rows.map(([, row]) => row));
  });
});
search.addEventListener('input', () => {
  const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let shown = 0;
  for (const row of body.rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
    shown += !row.hidden;
  }
  document.querySelector('#shown').textContent = shown;
});
"""
