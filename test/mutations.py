"""Damaged copies of good files, for tests of whoever reads them."""

from hypothesis import strategies as st

HOSTILE_NUMBERS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


@st.composite
def mutations(draw, most=4):
    """Draw a function from bytes to damaged bytes: flipped, cut, doubled, with huge numbers."""
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(['flip', 'cut', 'double', 'number', 'zero']),
                st.floats(0, 1, exclude_max=True),
                st.integers(0, 255),
            ),
            min_size=1,
            max_size=most,
        )
    )

    def mutate(data):
        data = bytearray(data)
        for kind, place, value in steps:
            at = int(place * len(data))
            if kind == 'flip' and data:
                data[at] ^= value or 1
            elif kind == 'cut':
                del data[at : at + 1 + value]
            elif kind == 'double':
                data[at:at] = data[at : at + 1 + value]
            elif kind == 'number':
                number = HOSTILE_NUMBERS[value % len(HOSTILE_NUMBERS)]
                data[at : at + 8] = number.to_bytes(8, 'little')
            elif kind == 'zero':
                data[at : at + 1 + value] = bytes(len(data[at : at + 1 + value]))
        return bytes(data)

    return mutate


def json_values():
    """Any JSON value, strings that are names of fields included."""
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=10), inner, max_size=4)
        ),
        max_leaves=10,
    )


@st.composite
def json_mutations(draw):
    """Draw a function that puts any JSON value in the place of one value of a JSON document."""
    place, value = draw(st.integers(0, 10**6)), draw(json_values())
    delete = draw(st.booleans())

    def mutate(document):
        places = list(_places(document))
        parent, key = places[place % len(places)]
        if delete and isinstance(parent, dict):
            del parent[key]
        else:
            parent[key] = value
        return document

    return mutate


def _places(document):
    """Yield (container, key) of every value in a JSON document."""
    keys = document if isinstance(document, dict) else range(len(document))
    for key in list(keys):
        yield document, key
        if isinstance(document[key], (dict, list)):
            yield from _places(document[key])
