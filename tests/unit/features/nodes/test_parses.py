"""Dependency parses: both formats, how tokens become words, and files that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silohash.base.errors import BadLine, DamagedFile, MissingFile, UserError, WrongKindOfFile
from silohash.features.nodes.parses import NO_HEAD, Parse, read_parses
from silohash.features.words import WordRule

RULE = WordRule(numbers=True, single_letters=True, common_words=True)
CONLLU = """\
# sent_id = 1
# text = A dog isn't running.
1\tA\ta\tDET\t_\t_\t2\tdet\t_\t_
2\tdog\tdog\tNOUN\t_\t_\t5\tnsubj\t_\t_
3-4\tisn't\t_\t_\t_\t_\t_\t_\t_\t_
3\tis\tbe\tAUX\t_\t_\t5\taux\t_\t_
4\tn't\tnot\tPART\t_\t_\t5\tadvmod\t_\t_
5\trunning\trun\tVERB\t_\t_\t0\troot\t_\t_
5.1\tempty\t_\t_\t_\t_\t_\t_\t_\t_
6\t.\t.\tPUNCT\t_\t_\t5\tpunct\t_\t_

# text = Two cats.
1\tTwo\ttwo\tNUM\t_\t_\t2\tnummod\t_\t_
2\tcats\tcat\tNOUN\t_\t_\t0\troot\t_\t_
3\t.\t.\tPUNCT\t_\t_\t2\tpunct\t_\t_
"""


def parses(path: Path, content: str) -> dict[str, Parse]:
    path.write_text(content, encoding="utf-8")
    return read_parses(path, RULE)


def heads(found: dict[str, Parse], text: str) -> list[int] | None:
    words = RULE.words(text)
    parse = found.get("".join(words))
    return None if parse is None else parse.heads_of(words)


def test_conllu_gives_the_heads_of_the_words_of_a_text(tmp_path: Path) -> None:
    found = parses(tmp_path / "parses.conllu", CONLLU)
    assert heads(found, "A dog isn't running.") == [1, 3, 3, NO_HEAD]
    assert heads(found, "two CATS") == [1, NO_HEAD]
    assert heads(found, "Three cats.") is None


def test_the_sentences_of_a_document_are_one_text(tmp_path: Path) -> None:
    second = CONLLU[CONLLU.index("# text = Two") :]
    found = parses(tmp_path / "parses.conllu", f"# newdoc id = a\n{CONLLU}\n# newdoc\n{second}")
    assert heads(found, "A dog isn't running. Two cats.") == [1, 3, 3, NO_HEAD, 5, NO_HEAD]
    assert heads(found, "A dog isn't running.") is None
    assert heads(found, "Two cats.") == [1, NO_HEAD]


def test_json_lines_give_the_heads_of_the_words_of_a_text(tmp_path: Path) -> None:
    lines = [
        {"words": ["A", "dog", "is", "n't", "running", "."], "heads": [2, 5, 5, 5, 0, 5]},
        {"text": "two cats", "words": ["two", "cats"], "heads": [2, 0]},
    ]
    content = "\n\n".join(map(json.dumps, lines))
    for name in ("parses.json", "parses.jsonl"):
        found = parses(tmp_path / name, content)
        assert heads(found, "A dog isn't running.") == [1, 3, 3, NO_HEAD]
        assert heads(found, "two cats") == [1, NO_HEAD]


@pytest.mark.parametrize(
    ("pieces", "token_heads", "words", "expected"),
    [
        (("t", "shirt"), (2, 0), ["tshirt"], [NO_HEAD]),
        (("tshirt", "hangs"), (2, 0), ["t", "shirt", "hangs"], [2, 0, NO_HEAD]),
        (("a", "b", ""), (3, 0, 2), ["a", "b"], [1, NO_HEAD]),  # the head of a is a comma, whose head is b
        (("a", "", ""), (2, 3, 2), ["a"], [NO_HEAD]),  # commas that depend on each other end nowhere
        (("", "a", "b"), (0, 1, 2), ["a", "b"], [NO_HEAD, 0]),
        (("ab", "cd"), (0, 1), ["a", "bc", "d"], [NO_HEAD, 0, 1]),
        ((), (), [], []),
    ],
)
def test_tokens_become_words_by_their_letters(
    pieces: tuple[str, ...], token_heads: tuple[int, ...], words: list[str], expected: list[int]
) -> None:
    assert Parse(pieces, token_heads).heads_of(words) == expected


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("p.jsonl", '{"words": ["a"], "heads": [0]}\n{"words": ["a"]}', BadLine, r"p\.jsonl, line 2: heads: field required"),
        ("p.jsonl", "[1]", BadLine, r"line 1: input should be an object"),
        ("p.jsonl", "{", BadLine, r"invalid.*JSON"),
        ("p.jsonl", '{"words": ["a", "b"], "heads": [0]}', BadLine, r"1.*1.*2"),
        ("p.jsonl", '{"words": ["a", "b"], "heads": [0, 3]}', BadLine, r"2.*3"),
        ("p.jsonl", '{"words": ["a", "b"], "heads": [1, 0]}', BadLine, r"line 1: the head of word 1 is 1"),
        ("p.jsonl", '{"words": ["a"], "heads": ["0"]}', BadLine, r"line 1: heads.0: input should be a valid integer"),
        ("p.jsonl", '{"text": "b", "words": ["a"], "heads": [0]}', BadLine, "1"),
        ("p.conllu", "1\ta\tb\n", BadLine, r"p\.conllu.*line.*1.*3"),
        ("p.conllu", CONLLU.replace("2\tcats", "3\tcats"), BadLine, r"line.*14.*3.*2"),
        ("p.conllu", CONLLU.replace("\t0\troot", "\t_\troot", 1), BadLine, "8"),
        ("p.conllu", CONLLU.replace("\t0\troot", "\t9\troot", 1), BadLine, r"3.*5.*9"),
        ("p.conllu", CONLLU.replace("text = Two", "text = Three"), BadLine, r"13.*Three.*cats"),
        ("p.txt", "", WrongKindOfFile, r"p\.txt"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used_are_named_with_the_line(
    tmp_path: Path, name: str, content: str, kind: type[UserError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        parses(tmp_path / name, content)


def test_missing_files_and_other_encodings_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"none\.jsonl.*features\.text\.parses"):
        read_parses(tmp_path / "none.jsonl", RULE)
    (tmp_path / "latin.jsonl").write_bytes(b"\xe9")
    with pytest.raises(DamagedFile, match=r"latin\.jsonl"):
        read_parses(tmp_path / "latin.jsonl", RULE)
