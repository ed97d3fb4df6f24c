"""Texts on their way into Redis: cut to size, and always such that they can be encoded."""

import pytest

from unstuck.errors import Refused
from unstuck.protocol.values import clip, encode

LONE = "caf\udce9.txt"  # a file name in Latin-1, as os.listdir gives it


@pytest.mark.parametrize(
    ("text", "size", "cut"),
    [
        ("short", 10, "short"),
        ("", 10, ""),
        ("abcdef", 3, "abc"),
        ("caf\u00e9", 4, "caf"),
        ("caf\u00e9", 5, "caf\u00e9"),
        (LONE, 100, "caf\\udce9.txt"),
        (LONE, 7, "caf\\udc"),
    ],
)
def test_a_text_is_cut_to_size_never_inside_a_character_and_can_be_encoded(text, size, cut):
    assert clip(text, size) == cut
    assert len(clip(text, size).encode()) <= size


def test_a_text_of_a_class_of_its_own_becomes_plain():
    class Odd(str):
        __slots__ = ()

        def __len__(self) -> int:
            return 0

    assert type(clip(Odd("text"), 10)) is str


def test_a_payload_with_a_lone_surrogate_is_refused_with_a_sentence_that_does_not_quote_the_rest():
    with pytest.raises(
        Refused, match=r"the lone surrogate '\\udce9', which UTF-8 cannot hold; decode the bytes"
    ) as refusal:
        encode({"file": LONE})
    assert "caf" not in str(refusal.value)


def test_a_payload_keeps_every_character_of_unicode():
    assert encode({"to": "caf\u00e9 \U0001f600"}) == '{"to":"caf\u00e9 \U0001f600"}'
