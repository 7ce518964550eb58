"""Dependency parses of texts, from a file of JSON lines or in the CoNLL-U format.

A parse gives each token of a text its head, the token that it depends on. Parsers divide texts otherwise than
`WordRule` does ("isn't" into "is" and "n't", and full stops are tokens), so tokens and words are matched by
their letters, and a text is found by the letters of its words.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import NotRequired, Self

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from silohash.base.errors import BadLine, WrongKindOfFile
from silohash.base.forms import fault, reading
from silohash.features.words import WordRule

NO_HEAD = -1
"""Head of a word that does not depend on another word of its text."""

REMEDY = "Correct the file, or leave features.text.parses out."
MISSING = "Set features.text.parses to a file of parses (.jsonl or .conllu), or leave it out and train the run again."
COLUMNS = 10
"""Number of columns of a token in the CoNLL-U format."""


class _Line(TypedDict):
    words: list[str]
    heads: list[int]
    text: NotRequired[str]


_LINE: TypeAdapter[_Line] = TypeAdapter(_Line)


@dataclass(frozen=True)
class Parse:
    """The parse of one text.

    Attributes:
        pieces: The letters of each token; empty for a token without any, such as a comma.
        heads: For each token the position of its head, from 1; 0 for a token without a head.
    """

    pieces: tuple[str, ...]
    heads: tuple[int, ...]

    def heads_of(self, words: Sequence[str]) -> list[int]:
        """Return the position of each word's head among the words, from 0, or `NO_HEAD`.

        A word that a parser divides has the first head of its tokens that is outside the word. Of a token with several
        words, the first has the token's head, and the others depend on the first. Words have the letters of the tokens.
        """
        word_of = self._words_of_tokens(words)
        found = [NO_HEAD] * len(words)
        for token, word in enumerate(word_of):
            if word != NO_HEAD and found[word] == NO_HEAD:
                head = self._word_above(token, word_of)
                found[word] = NO_HEAD if head == word else head
        firsts = {*word_of}
        for place in range(len(words)):
            if place not in firsts:
                found[place] = max(first for first in firsts if first < place)
        return found

    def _words_of_tokens(self, words: Sequence[str]) -> list[int]:
        """Return the word in which each token begins, or `NO_HEAD` for a token without letters."""
        word_at = [place for place, word in enumerate(words) for _ in word]
        starts = accumulate(map(len, self.pieces), initial=0)
        return [word_at[start] if piece else NO_HEAD for piece, start in zip(self.pieces, starts, strict=False)]

    def _word_above(self, token: int, word_of: Sequence[int]) -> int:
        """Return the word of the nearest token above a token that has a word, or `NO_HEAD`."""
        above = self.heads[token]
        for _ in self.heads:
            if above == 0 or word_of[above - 1] != NO_HEAD:
                break
            above = self.heads[above - 1]
        return NO_HEAD if above == 0 else word_of[above - 1]


@dataclass(frozen=True)
class _Read:
    """A parse as a file holds it, from a line on. It may state the text, and begin one of several sentences."""

    line: int
    text: str | None
    tokens: list[str]
    heads: list[int]
    begins: bool = False

    def checked(self, path: Path) -> Self:
        """Return this parse.

        Raises:
            UserError: If a token does not have exactly one head among the others.
        """
        count = len(self.tokens)
        if len(self.heads) != count:
            raise BadLine(f"{path}, line {self.line}: {len(self.heads)} heads are given for {count} words. {REMEDY}")
        for place, head in enumerate(self.heads, 1):
            if not 0 <= head <= count or head == place:
                raise BadLine(
                    f"{path}, line {self.line}: the head of word {place} is {head}. It must be another word, from 1 to "
                    f"{count}, or 0 for none. {REMEDY}"
                )
        return self


def read_parses(path: Path, rule: WordRule) -> dict[str, Parse]:
    """Return the parses of a file of JSON lines (``.jsonl`` or ``.json``) or CoNLL-U, by the letters of their words.

    Raises:
        UserError: If the file is missing, has another format, or a line cannot be used.
    """
    read = _READERS.get(path.suffix)
    if read is None:
        raise WrongKindOfFile(f"{path} is not named as a file of parses. Give a file .jsonl or .conllu.")
    found: dict[str, Parse] = {}
    with reading(path, remedy=REMEDY, missing=MISSING), path.open(encoding="utf-8") as lines:
        for each in read(path, enumerate(lines, 1)):
            parse = Parse(tuple("".join(rule.words(token)) for token in each.tokens), tuple(each.heads))
            letters = "".join(parse.pieces)
            if each.text is not None and "".join(rule.words(each.text)) != letters:
                text = f'the words do not have the letters of the text "{each.text[:80]}"'
                raise BadLine(f"{path}, line {each.line}: {text}. {REMEDY}")
            found.setdefault(letters, parse)
    return found


def _json_lines(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[_Read]:
    for number, line in lines:
        if line.strip():
            try:
                entry = _LINE.validate_json(line, strict=True)
            except ValidationError as error:
                raise BadLine(
                    f"{path}, line {number}: {fault(error)}. Give one object per line, such as "
                    '{"words": ["dogs", "run"], "heads": [2, 0]}.'
                ) from error
            yield _Read(number, entry.get("text"), entry["words"], entry["heads"]).checked(path)


def _conllu(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[_Read]:
    """Yield the parses of a file in the CoNLL-U format, one per document, or one per sentence if no document is named."""
    text: _Read | None = None
    documents = False
    for sentence in _sentences(path, lines):
        documents = documents or sentence.begins
        if text is not None and (sentence.begins or not documents):
            yield text
            text = None
        text = sentence if text is None else _joined(text, sentence)
    if text is not None:
        yield text


def _joined(text: _Read, sentence: _Read) -> _Read:
    whole = None if text.text is None or sentence.text is None else f"{text.text} {sentence.text}"
    heads = [head + len(text.tokens) if head else 0 for head in sentence.heads]
    return _Read(text.line, whole, [*text.tokens, *sentence.tokens], [*text.heads, *heads])


def _sentences(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[_Read]:
    current = _Read(0, None, [], [])
    for number, line in chain(lines, [(0, "")]):
        if line.startswith("#"):
            name, _, value = line[1:].partition("=")
            text = value.strip() if name.strip() == "text" else current.text
            current = replace(current, text=text, begins=current.begins or name.split()[:1] == ["newdoc"])
        elif line.strip():
            _add_token(current, line.rstrip("\r\n").split("\t"), f"{path}, line {number}")
            current = replace(current, line=current.line or number)
        elif current.tokens:
            yield current.checked(path)
            current = _Read(0, None, [], [])


def _add_token(sentence: _Read, columns: Sequence[str], where: str) -> None:
    """Add a token to a sentence. Lines of several tokens, such as 3-4, and of empty nodes, such as 5.1, are skipped."""
    if len(columns) != COLUMNS:
        raise BadLine(f"{where} has {len(columns)} columns with tabs between them, and CoNLL-U has {COLUMNS}. {REMEDY}")
    number, form, head = columns[0], columns[1], columns[6]
    if "-" in number or "." in number:
        return
    if number != str(len(sentence.tokens) + 1):
        raise BadLine(f'{where} has the number "{number}" instead of {len(sentence.tokens) + 1}. {REMEDY}')
    if not (head.isascii() and head.isdecimal()):
        raise BadLine(f'{where} has the head "{head}", which is not the number of a word or 0. {REMEDY}')
    sentence.tokens.append(form)
    sentence.heads.append(int(head))


_READERS: Mapping[str, Callable[[Path, Iterable[tuple[int, str]]], Iterator[_Read]]] = {
    ".json": _json_lines,
    ".jsonl": _json_lines,
    ".conllu": _conllu,
}
"""The reader of each kind of file, by the ending of its name."""
