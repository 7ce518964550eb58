"""The embedded archive: characters drawn in sixteen faces of two families of fonts, with their Unicode names and kinds.

An item is one character in one face. Its picture is 32 x 32 gray, black on white. Its text is the character's Unicode
name in lower case. Its labels are the kinds of `silohash.data.glyphs.labels.KINDS`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from silohash.base.files import digest_json
from silohash.base.seeds import derive
from silohash.base.types import Rows, UserError
from silohash.data.archive import Archive, ArchiveCard, multi_hot
from silohash.data.glyphs.drawn import FACES, Drawn, read_drawn
from silohash.data.glyphs.labels import KINDS, Glyph, describe
from silohash.data.pictures.reading import GrayPictures
from silohash.data.splits import splits_of

QUERY_SHARE = 0.1
TRAIN_SHARE = 0.5

CARD = ArchiveCard(
    name="glyphs",
    source="Characters of the DejaVu (dejavu-fonts.github.io) and STIX (stixfonts.org) fonts, with "
    "names from the Unicode character database (unicode.org)",
    license="DejaVu: Bitstream Vera license, changes in the public domain; STIX: SIL Open Font License 1.1; "
    "names: Unicode License",
    protocol="glyphs/unseen-characters",
    notes={
        "relevant": "items that share a kind",
        "split": "by character, in each library: 10 % query, half of the others train, all others database; so no "
        "query character is trained on or searched in any face, and about half "
        "of the database's characters are never trained on",
    },
)


def glyphs(*, faces: int = 9, limit: int | None = None) -> Archive:
    """Open the embedded archive of drawn characters.

    Args:
        faces: Number of faces, 1 to 16.
        limit: Largest number of items. Characters are kept or left out in all their faces, and at least one is kept.

    Raises:
        UserError: If an option is out of its range, or the file of the drawings is missing or damaged.
    """
    _check("faces", faces, f"from 1 to {len(FACES)}", len(FACES))
    if limit is not None:
        _check("limit", limit, "above 0", sys.maxsize)
    drawn = read_drawn(faces)
    kept = np.ones(len(drawn.codepoints), bool) if limit is None else _limited(drawn.codepoints, limit)
    digest = digest_json({"faces": [drawn.about.digests[face] for face in FACES[:faces]], "limit": limit})
    return _archive(drawn, kept, digest)


def _check(option: str, value: object, limits: str, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise UserError(f"glyphs: {option} is {value!r}. Set it to a whole number {limits}.")


def _archive(drawn: Drawn, kept: npt.NDArray[np.bool_], digest: str) -> Archive:
    unique, character_of = np.unique(drawn.codepoints[kept], return_inverse=True)
    known = [describe(character, drawn.facts[character]) for character in map(chr, unique)]
    face_of_item = drawn.faces[kept]
    slugs = np.array([name.replace(" ", "-") for name in FACES])
    hexadecimal = np.array([f"u{codepoint:04x}-" for codepoint in unique])

    def _per_item(attribute: str) -> npt.NDArray[np.str_]:
        return np.array([getattr(glyph, attribute) for glyph in known], dtype=np.str_)[character_of]

    return Archive(
        ids=np.strings.add(hexadecimal[character_of], slugs[face_of_item]),
        image=GrayPictures(drawn.pictures[drawn.places[kept]], digest),
        text=_per_item("name"),
        labels=multi_hot([glyph.kinds for glyph in known], KINDS)[character_of],
        label_names=KINDS,
        splits=_splits(known, character_of),
        card=CARD,
        columns={
            **{name: _per_item(name) for name in ("library", "script", "block", "character")},
            "face": np.array(FACES)[face_of_item],
        },
    ).with_digest()


def _splits(known: Sequence[Glyph], character_of: npt.NDArray[np.intp]) -> dict[str, Rows]:
    part = np.empty(len(known), dtype="<U8")
    for library in sorted({glyph.library for glyph in known}):
        members = [row for row, glyph in enumerate(known) if glyph.library == library]
        members.sort(key=lambda row: derive(0, f"glyphs/split/{known[row].character}"))
        queries = max(1, round(QUERY_SHARE * len(members))) if len(members) > 1 else 0
        trained = round(TRAIN_SHARE * (len(members) - queries) + 0.25)
        part[members[:queries]] = "query"
        part[members[queries : queries + trained]] = "train"
        part[members[queries + trained :]] = "database"
    return splits_of(part[character_of])


def _limited(codepoints: npt.NDArray[np.int32], limit: int) -> npt.NDArray[np.bool_]:
    unique, counts = np.unique(codepoints, return_counts=True)
    order = np.argsort([derive(0, f"glyphs/limit/{chr(codepoint)}") for codepoint in unique])
    kept = np.cumsum(counts[order]) <= limit
    kept[:1] = True
    return np.isin(codepoints, unique[order[kept]])
