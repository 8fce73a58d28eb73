"""The report, in a real browser where there is one."""

import html.parser
import re

import pytest
from browser import Browser, find_browser
from replay_runs import driven, straight, write_run

from wamdiff_ros import cli

EVIL = '</td><script>document.title="owned"</script><img src=x onerror=alert(1)>'
VOID = ('meta', 'link', 'img', 'input', 'br')


def evil(ticks):
    """Put markup into all that a recording or a model can say."""
    for number, tick in enumerate(ticks):
        tick['answer'] = EVIL
        tick['description'] = {'t0_ns': 1, 'text': EVIL, 'sections': [], 'truncated': False}
        if tick['status'] != 'NOMINAL':
            tick['reason'] = EVIL
        if number == 0:
            tick['command'] = EVIL
    return ticks


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp('runs')
    bags = {
        'alpha': evil(straight(100, faster=1.05, refused=(40,))),
        'beta <b>': straight(60, faster=1.2),
        'gamma': driven(28, 60),
        'delta': 'it has </td><script>no</script> camera',
    }
    better = {**bags, 'beta <b>': straight(60, faster=1.1)}
    pictures = (0, 10, 40)
    write_run(folder / 'before', bags, '<i>old</i>', notes=[EVIL], pictures=pictures)
    write_run(folder / 'after', better, '<i>new</i>', notes=[EVIL], pictures=pictures)
    return folder


@pytest.fixture(scope='module')
def page(runs):
    path = runs / 'report.html'
    assert (
        cli.main(['report', *map(str, (runs / 'before', runs / 'after')), '--out', str(path)]) == 0
    )
    return path


def test_the_page_is_one_well_formed_file_without_markup_of_others(page):
    tags, open_tags, addresses = [], [], []

    class Checker(html.parser.HTMLParser):
        def handle_starttag(self, tag, attributes):
            tags.append(tag)
            addresses.extend(v for k, v in attributes if k in ('src', 'href'))
            assert not [name for name, _ in attributes if name.startswith('on')]
            if tag not in VOID:
                open_tags.append(tag)

        def handle_startendtag(self, tag, attributes):
            addresses.extend(v for k, v in attributes if k in ('src', 'href'))

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    text = page.read_text()
    Checker().feed(text)
    assert open_tags == []
    assert tags.count('script') == 1 and tags.count('i') == 2 * 2 * 4  # bars of two runs
    assert addresses and all(address.startswith('data:') for address in addresses)
    assert EVIL not in text and '&lt;i&gt;new&lt;/i&gt;' in text
    assert 'nan' not in re.sub(r'<script>.*?</script>|base64,[^"]*', '', text, flags=re.S)


def test_failures_are_told_at_the_top(page):
    text = page.read_text()
    assert '1 of 220 ticks have no plan of their own' in text
    assert 'delta was not replayed: it has &lt;/td&gt;' in text


@pytest.fixture(scope='module')
def browser():
    path = find_browser()
    if path is None:
        pytest.skip('no browser: neither chromium nor google-chrome is installed')
    with Browser(path) as browser:
        yield browser


@pytest.mark.parametrize('width', [375, 1200])
def test_it_loads_without_complaints_or_network_and_fits(page, browser, width):
    browser.load(page, width)
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.evaluate('document.documentElement.scrollWidth') <= width
    assert browser.evaluate('document.title') == 'Replay: after against before'
    too_wide = """[...document.body.querySelectorAll('*')].filter(
        e => !e.closest('.scroll, svg *')
            && e.getBoundingClientRect().right > innerWidth + 1).length"""
    assert browser.evaluate(too_wide) == 0
    crowded = "[...document.querySelectorAll('.bars td')].filter(c => c.offsetHeight > 60).length"
    assert browser.evaluate(crowded) == 0  # no word is broken letter by letter
    small = """Math.min(...[...document.querySelectorAll('.plot text, .case text')].map(
        e => e.getBoundingClientRect().height))"""
    assert browser.evaluate(small) >= 9  # letters that can be read


def test_the_table_is_sorted_by_a_click_and_the_other_way_by_a_second_one(page, browser):
    browser.load(page, 1200)
    names = "[...document.querySelectorAll('#bags tbody tr')].map(r => r.cells[0].textContent)"
    click = "[...document.querySelectorAll('#bags th button')].find(b => b.textContent{}).click()"
    assert browser.evaluate(names) == ['alpha', 'beta <b>', 'gamma']
    browser.evaluate(click.format(".startsWith('FDE')"))
    assert browser.evaluate(names) == ['gamma', 'alpha', 'beta <b>']
    browser.evaluate(click.format(".startsWith('FDE')"))
    assert browser.evaluate(names) == ['beta <b>', 'alpha', 'gamma']
    browser.evaluate(click.format(" === 'ticks'"))  # numbers, not words: 100 after 60
    assert browser.evaluate(names)[-1] == 'alpha'
    browser.evaluate(click.format(" === 'PDMS'"))  # bags without a value come last
    assert browser.evaluate(names)[0] == 'gamma'
    browser.evaluate(click.format(" === 'bag'"))
    assert browser.evaluate(names) == ['alpha', 'beta <b>', 'gamma']
    assert browser.complaints() == []


def test_the_search_hides_the_other_bags(page, browser):
    browser.load(page, 375)
    browser.evaluate("""search.value = 'ALPH';
        search.dispatchEvent(new Event('input'))""")
    shown = "[...document.querySelectorAll('#bags tbody tr')].filter(r => r.offsetHeight).length"
    assert browser.evaluate(shown) == 1
    assert browser.evaluate("document.querySelector('#shown').textContent") == '1'
    browser.evaluate("search.value = ''; search.dispatchEvent(new Event('input'))")
    assert browser.evaluate(shown) == 3


def test_the_worst_moments_have_their_pictures(page, browser):
    browser.load(page, 1200)
    assert browser.evaluate("document.querySelectorAll('.case image').length") >= 3
    assert browser.evaluate("document.querySelectorAll('.case').length") >= 5


def test_videos_are_linked_from_where_the_page_lies_and_never_loaded(runs, tmp_path, browser):
    run = write_run(tmp_path / 'a run', {'alpha': straight(20), 'beta <b> #1': straight(20)})
    (run / 'beta <b> #1' / 'plan.mp4').write_bytes(b'a film')
    page = tmp_path / 'pages' / 'report.html'
    assert cli.main(['report', str(run), '--out', str(page)]) == 0
    browser.load(page, 1200)
    links = browser.evaluate("[...document.querySelectorAll('#bags a')].map(a => a.href)")
    assert links == [(run / 'beta <b> #1' / 'plan.mp4').resolve().as_uri()]
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]


def test_a_report_of_one_run_is_written_into_it(runs, capsys):
    assert cli.main(['report', str(runs / 'after'), '--json']) == 0
    assert (runs / 'after' / 'report.html').exists()
    assert '"own_plan"' in capsys.readouterr().out
