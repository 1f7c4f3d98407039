"""What is code, and what is a comment, a string or a character, in texts that are hard to tell."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.scan import blank, closing, declared, without_comments

ROOT = Path(__file__).resolve().parents[2]

# A text; then, in the same places, # for a comment and ~ for another token that is no code.
TEXTS = {
    "a // b\nc": "a ####\nc",
    "a /* b\n* c */ d /**/ e": "a ####\n###### d #### e",
    "a // b \\\n c\nd": "a ######\n##\nd",
    "a // b \\\r\n c\nd": "a #######\n##\nd",
    "a /* b": "a ####",
    "a / b": "a / b",
    '"a // b" // "c"': "~~~~~~~~ ######",
    r'"\"" a "\\" b': "~~~~ a ~~~~ b",
    '"a \\\n b" c': "~~~~\n~~~ c",
    '"a \\\r\n b" c': "~~~~~\n~~~ c",
    """'"' a "'" b '\\'' c""": "~~~ a ~~~ b ~~~~ c",
    "case'\"': f(u8'\"', L'\"') // g": "case~~~: f(u8~~~, L~~~) ####",
    'R"(")" a u8R"x(\n)" //)x" b': "R~~~~~ a u8R~~~\n~~~~~~~~ b",
    'FOUR"(" a': "FOUR~~~ a",
    "1'000 + 0xab'cdu + x1 + 1.5'0f '/*' a": "1'000 + 0xab'cdu + x1 + 1.5'0f ~~~~ a",
    "a \\\n b": "a ~\n b",
    "don't // a": "don't ####",
    'a " b // c': 'a " b ####',
}


@pytest.mark.parametrize(("text", "kinds"), TEXTS.items())
def test_tokens(text, kinds):
    def filled(marks):
        kept = zip(text, kinds, strict=True)
        return "".join(" " if kind in marks else char for char, kind in kept)

    assert blank(text) == filled("#~")
    assert without_comments(text) == filled("#")


@given(st.text(alphabet="ab01'\"\\/*\n\r uLR8().x", max_size=60))
def test_any_text_keeps_its_offsets_and_lines(text):
    for after in (blank(text), without_comments(text)):
        assert len(after) == len(text)
        assert all(b in (a, " ") for a, b in zip(text, after, strict=True))
        assert [i for i, c in enumerate(text) if c == "\n"] == [
            i for i, c in enumerate(after) if c == "\n"
        ]


insides = st.text(alphabet="in '\"/*\\\n()#1;", max_size=12)


def escaped(text: str) -> str:
    """As a string or a character holds it."""
    return re.sub(r"(['\"\\\n])", r"\\\1", text)


tokens = st.one_of(
    st.sampled_from(["out;", "out(1'000, 0xF'F);", "out\n", "out / 2;", "case", "#if out\n"]).map(
        lambda text: (text, "code")
    ),
    insides.map(lambda text: (f"//{text.replace(chr(10), '').rstrip(chr(92))}\n", "comment")),
    insides.map(lambda text: (f"/*{text.replace('*/', '')} */", "comment")),
    st.tuples(st.sampled_from(["", "u8", "L"]), insides).map(
        lambda parts: (f'{parts[0]}"{escaped(parts[1])}"', "literal")
    ),
    st.tuples(st.sampled_from(["", "u8", "L"]), insides).map(
        lambda parts: (f"{parts[0]}'{escaped(parts[1])}'", "literal")
    ),
    st.tuples(st.sampled_from(["R", "u8R", "LR"]), insides).map(
        lambda parts: (f'{parts[0]}"in({parts[1]})in"', "literal")
    ),
)


@given(st.lists(tokens, max_size=8))
def test_nothing_in_a_comment_or_a_literal_is_code_and_all_else_is(parts):
    text = " ".join(token for token, _ in parts)
    code, said = blank(text), without_comments(text)
    assert "in" not in code
    assert code.count("out") == sum("out" in token for token, kind in parts if kind == "code")
    assert said.count("in") == sum(token.count("in") for token, kind in parts if kind == "literal")
    place = 0
    for token, kind in parts:
        here = slice(place, place + len(token))
        if kind == "code":
            assert code[here] == said[here] == token
        elif kind == "literal":
            assert said[here] == token
        else:
            assert not said[here].strip()
        place = here.stop + 1


def test_code_of_the_project_keeps_its_brackets():
    """Each of its files has as many opening brackets as closing ones, where only code counts."""
    patterns = ("kernels/**/*.cu", "kernels/**/*.cuh", "kernels/**/*.cpp", "simulator/**/*.h")
    files = [file for pattern in patterns for file in ROOT.glob(pattern)]
    assert len(files) > 50
    for file in files:
        code = blank(file.read_text())
        for pair in ("()", "[]", "{}"):
            assert code.count(pair[0]) == code.count(pair[1]), file


def test_a_parenthesis_is_closed():
    assert closing("f(a, (b), c) (d)", 1) == 12
    assert closing("f(a, (b), c", 1) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("__shared__ float a[8][9], b[N];", [("float", "a", ["8", "9"]), ("float", "b", ["N"])]),
        (
            "__shared__ alignas(16) std::array<float, 4> a;\n__shared__ int n;",
            [("alignas(16) std::array<float, 4>", "a", []), ("int", "n", [])],
        ),
        ("__shared__ float a;\nstatic float kept, b;", [("float", "a", [])]),
        ("__shared__ struct { int k; } a, b;", [("struct { int k; }", it, []) for it in "ab"]),
        ("__shared__ float a[k < 4 ? 2 : 3];", [("float", "a", ["k < 4 ? 2 : 3"])]),
        ("void f(__shared__ x); int y;", []),
    ],
)
def test_variables_that_are_declared(text, wanted):
    assert [(it.type, it.name, it.extents) for it in declared(text, "__shared__")] == wanted


@pytest.mark.parametrize(
    ("text", "sign"), [("float a[2] = {1, 2}, b;", "="), ("int a{3}, b;", "{")]
)
def test_where_a_variables_value_is(text, sign):
    a, b = declared(f"__constant__ {text}", "__constant__")
    assert f"__constant__ {text}"[a.value_at] == sign
    assert (b.name, b.value_at) == ("b", None)
