"""The desk finds the text of a markdown document, and leaves every other byte as it is."""

from __future__ import annotations

import re

import pytest
from examples.translation_desk.prose import fragments_of, with_translations
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt


def texts(document):
    return [document[each.start : each.end] for each in fragments_of(document)]


def translated(document, translate=str.upper):
    fragments = fragments_of(document)
    return with_translations(document, fragments, [translate(document[each.start : each.end]) for each in fragments])


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("# A heading #\n", "# A HEADING #\n"),
        ("Setext\n======\n", "SETEXT\n======\n"),
        ("some *soft* and **hard** and ~~old~~ text", "SOME *SOFT* AND **HARD** AND ~~OLD~~ TEXT"),
        ("run `make it` now", "RUN `make it` NOW"),
        ("a [link](http://a.b/c 'title') b", "A [LINK](http://a.b/c 'title') B"),
        ("![an image](a_b.png)", "![AN IMAGE](a_b.png)"),
        ("[![badge](b.svg) text](http://c)", "[![BADGE](b.svg) TEXT](http://c)"),
        ("x ![a ![b](c) d](e)", "X ![A ![B](c) D](e)"),
        ("![a [b](c) d](e)", "![A [B](c) D](e)"),
        ("see https://a.b/c_d_e?f=g, or me@a.org now", "SEE https://a.b/c_d_e?f=g, OR me@a.org NOW"),
        ("<https://auto.link> and <b>bold</b>", "<https://auto.link> AND <b>BOLD</b>"),
        ("a <code>kept</code> <kbd>kept <b>too</b></kbd> b", "A <code>kept</code> <kbd>kept <b>too</b></kbd> B"),
        ("<div>\nan html block\n</div>\n", "<div>\nan html block\n</div>\n"),
        ("```sh\ncode\n```\n\n    code\n", "```sh\ncode\n```\n\n    code\n"),
        ("---\ntitle: kept\n---\ntext", "---\ntitle: kept\n---\nTEXT"),
        ("+++\ntitle = 1\n+++\ntext", "+++\ntitle = 1\n+++\nTEXT"),
        ("> quote\nlazy\n> > deep", "> QUOTE\nLAZY\n> > DEEP"),
        ("- one\n  more\n1. two\n   - three", "- ONE\n  MORE\n1. TWO\n   - THREE"),
        ("1. 1 one", "1. 1 ONE"),
        ("a\\*b &amp; c  \nd", "A\\*B &amp; C  \nD"),
        ("| a | b \\| c `d` |\n|--|:-:|\n| b | a b |\n", "| A | B \\| C `d` |\n|--|:-:|\n| B | A B |\n"),
        ("> 1. | x | 1 y |\n>    |---|---|\n>    | z | x |", "> 1. | X | 1 Y |\n>    |---|---|\n>    | Z | X |"),
        (
            "[text][ref] [ref] [ref][]\n\n[ref]: http://a 'title'",
            "[TEXT][ref] [ref] [ref][]\n\n[ref]: http://a 'title'",
        ),
        ("one\r\ntwo\r\n\r\n# three\r\n", "ONE\r\nTWO\r\n\r\n# THREE\r\n"),
        ("\tcode\n\ntext\tmore", "\tcode\n\nTEXT\tMORE"),
        ("a lone * star, [bracket, ! and 50%", "A LONE * STAR, [BRACKET, ! AND 50%"),
        ("", ""),
        ("123 -- 456", "123 -- 456"),
    ],
)
def test_only_text_is_translated(document, expected):
    assert translated(document) == expected


def test_a_sentence_is_one_text_as_far_as_its_marks_allow():
    assert texts("Well-known: 50% of it, (yes) & more! *And this* too.") == [
        "Well-known: 50% of it, (yes) & more!",
        "And this",
        "too.",
    ]


@pytest.mark.parametrize(
    ("document", "translation", "expected"),
    [
        ("text", "a *b* `c` [d](e) <f>", "a \\*b\\* \\`c\\` \\[d\\](e) \\<f\\>"),
        ("text", "1. b", "1\\. b"),
        ("text", "# b", "\\# b"),
        ("> text", "- b", "> \\- b"),
        ("| text |\n|---|", "a | b", "| a \\| b |\n|---|"),
        ("text", "a &lt; b & c", "a \\&lt; b & c"),
        ("text[link](a)", "so!", "so\\![SO!](a)"),
        ("text", "two\nlines\n\n# and more", "two lines # and more"),
        ("text", "", "text"),
    ],
)
def test_a_translation_cannot_bring_marks_of_its_own(document, translation, expected):
    fragments = fragments_of(document)
    translations = [translation, *("SO!" for _ in fragments[1:])]
    assert with_translations(document, fragments, translations) == expected


LINES = ["# ", "> ", "- ", "1. ", "    ", "```\n", "---\n", "<div>", "\n", "\r\n", "\t", "[r]: u\n\n"]
TABLE = ["| a | b |\n|---|---|\n| "]
WORDS = ["word ", "zwei ", ": ", "https://a.b/c_d ", "é", "日本", "\0", "\u2028", " ", "  \n", "\n", "\n\n", "1. "]
MARKS = [
    "*",
    "**",
    "_",
    "`",
    "[",
    "](u)",
    "![",
    "][r]",
    "[]",
    "<b>",
    "</code>",
    "<code>",
    "&amp;",
    "\\",
    "|",
    "~~",
    "!",
]
PARTS = st.sampled_from([*LINES, *TABLE]) | st.sampled_from([*WORDS, *MARKS, "<u:x>"])
DOCUMENTS = st.lists(PARTS, max_size=30).map("".join)


@given(DOCUMENTS)
@example("word \u2028# ")
def test_text_that_is_put_back_gives_the_same_bytes(document):
    assert translated(document, str) == document


@given(DOCUMENTS)
def test_texts_are_apart_in_order_and_say_something(document):
    position = 0
    for fragment in fragments_of(document):
        assert position <= fragment.start < fragment.end
        assert re.search(r"[^\W\d_]", document[fragment.start : fragment.end])
        position = fragment.end


def skeleton(document):
    """Return what a document consists of, without its text."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    shape = []

    def walk(tokens):
        for token in tokens:
            if token.type in {"text", "softbreak"}:
                continue
            content = "" if token.type in {"inline", "image"} else token.content
            shape.append((token.type, content, sorted((k, v) for k, v in token.attrs.items() if k != "alt")))
            walk(token.children or [])

    walk(parser.parse(document))
    return shape


@given(DOCUMENTS)
def test_a_translation_in_other_letters_has_the_same_structure(document):
    def other_letters(text):
        return re.sub(r"[a-z]", lambda letter: chr(ord(letter[0]) - ord("a") + ord("\u03b1")), text)

    assert skeleton(translated(document, other_letters)) == skeleton(document)
