"""The rules for a name, and labels.csv: what is written is what is read."""

from __future__ import annotations

import csv
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uniot.errors import DataError
from uniot.labelling.names import clean_name, read_names, write_names

HEADER = "path,label,decision,group\n"
some_text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
# No folder and no label of NumPy ends with a zero.
some_class = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
some_name = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=20)


@pytest.fixture
def table(tmp_path):
    def written(text: str):
        (tmp_path / "labels.csv").write_text(text, encoding="utf-8")
        return tmp_path / "labels.csv"

    return written


def test_a_name_is_trimmed_and_its_letters_are_composed():
    assert clean_name("  cafe\u0301 \t") == "caf\u00e9"
    assert clean_name("   ") == ""


@given(some_name)
def test_a_clean_name_stays_as_it_is(name):
    assert clean_name(clean_name(name)) == clean_name(name) == unicodedata.normalize("NFC", name.strip())


@pytest.mark.parametrize("letter", ["\n", "\r", "\0", "\x1b", "\x7f", "\x85", "\u2028", "\ud800", "\u202e", "\u2066"])
def test_control_characters_are_refused_within_a_name(letter):
    with pytest.raises(DataError, match="line breaks or other control characters"):
        clean_name(f"a{letter}b")


def test_a_name_of_two_hundred_characters_is_the_longest():
    assert len(clean_name("é" * 200)) == 200
    with pytest.raises(DataError, match="has 201 characters; the limit is 200"):
        clean_name("e\u0301" * 201)


def test_a_name_that_cannot_be_seen_is_refused():
    with pytest.raises(DataError, match="no visible character"):
        clean_name("\u200b\u200d")


@given(
    st.dictionaries(
        some_text,
        st.one_of(
            st.tuples(some_name.map(clean_name), st.just("named"), st.integers(0, 500)),
            st.tuples(some_class, st.just("class"), st.none()),
            st.tuples(st.just(""), st.just("discarded"), st.none()),
        ),
        max_size=8,
    )
)
def test_what_is_written_is_read_whatever_samples_are_called(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("names") / "labels.csv"
    write_names(path, [(name, *rest) for name, rest in lines.items()])
    found = read_names(path)
    assert found.names == list(lines)
    assert found.labels.tolist() == [label for label, _, _ in lines.values()]
    assert found.decisions.tolist() == [decision for _, decision, _ in lines.values()]
    with path.open(encoding="utf-8", newline="") as file:
        assert [row["group"] for row in csv.DictReader(file)] == [
            "" if group is None else str(group) for _, _, group in lines.values()
        ]


def test_new_classes_are_those_of_named_samples(table):
    found = read_names(
        table(f"{HEADER}a,kettle,named,1\nb,mug,class,\nc,,discarded,\nd,kettle,named,2\ne,ant,named,3\n")
    )
    assert found.new_classes == ["ant", "kettle"]


def test_a_table_by_hand_needs_no_group(table):
    found = read_names(table("label,path,decision\n kettle ,a,named\n"))
    assert (found.names, found.labels.tolist()) == (["a"], ["kettle"])


def test_a_table_by_hand_needs_no_decision(table):
    found = read_names(table("path,label,group\na,kettle,1\nb,pan,\n"))
    assert (found.labels.tolist(), found.decisions.tolist()) == (["kettle", "pan"], ["named", "named"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no column path"),
        ("path,decision\n", "has no column label. A table of labels has the columns path and label"),
        (f"{HEADER}a,kettle,named,1\na,mug,class,\n", "line 3, contains 'a' a second time"),
        (f"{HEADER}a,kettle,perhaps,1\n", "decision 'perhaps'. Use one of named, class, inferred, unknown, discarded"),
        (f"{HEADER}a,kettle,discarded,\n", "discards a sample and labels it 'kettle'"),
        (f"{HEADER}a,kettle,unknown,\n", "calls a sample unknown and labels it 'kettle'"),
        (f"{HEADER}a,,named,1\n", "line 2, has no label"),
        (f"{HEADER}a, ,named,1\n", "line 2, has no label"),
        (f"{HEADER}a,,class,\n", "line 2, has no label"),
        (f"{HEADER}a,kettle\n", "line 2, is cut off"),
        (f'{HEADER}a,"ket\ntle",named,1\n', "line 3: a name cannot contain line breaks"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(table, text, words):
    with pytest.raises(DataError, match=words):
        read_names(table(text))


def test_a_missing_table_says_how_to_make_one(tmp_path):
    with pytest.raises(DataError, match=r"cannot be read .* Name the groups with `uniot label`"):
        read_names(tmp_path / "labels.csv")


def test_a_file_of_another_kind_is_no_table(tmp_path):
    (tmp_path / "labels.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not a table of labels"):
        read_names(tmp_path / "labels.csv")
