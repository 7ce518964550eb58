"""Arguments of commands that name nothing, do not go together, or cannot be read."""

from __future__ import annotations

import io
from collections.abc import Iterator

from PIL import Image

from tests.bad_input.files import NOT_TEXT
from tests.bad_input.harness import Bad, a_zip, both, cut, folder_instead, put, removed

ON_A_RUN = ("resume", "evaluate", "index", "report", "search", "compare", "encode", "export")
"""Commands whose first argument is the folder of a run."""

REST = {"search": ("parrot",), "encode": ("--out", "codes.csv"), "export": ("--onnx",), "compare": ("other",)}


def rows() -> Iterator[Bad]:
    """Yield the rows."""
    yield from _runs()
    yield from _questions()
    yield from _pictures()
    yield from _others()


def _runs() -> Iterator[Bad]:
    for command in ON_A_RUN:
        rest = REST.get(command, ())
        no_run = ("does not hold a run", "silohash train CONFIG")
        yield Bad(f"{command}: a folder without a run", (command, "empty", *rest), no_run, folder_instead("empty"))
        yield Bad(f"{command}: no folder", (command, "nowhere", *rest), no_run)
        yield Bad(f"{command}: a file", (command, "file", *rest), ('"file"',), put("file", "text"))
    trained = ("evaluate", "index", "search", "encode", "export")
    for command in trained:
        says = ("has no trained model yet", "silohash resume run")
        yield Bad(f"{command}: not trained", (command, "run", *REST.get(command, ())), says, removed("run/model"))
    yield Bad("search: not indexed", ("search", "run", "parrot"), ("no index", "index run"), removed("run/index"))
    yield Bad("index --remove: not indexed", ("index", "run", "--remove", "x"), ("no index",), removed("run/index"))
    yield Bad("compare: one run", ("compare", "run"), ("two",))
    measure = ("compare", "run", "other", "--measure", "mPA@all")
    yield Bad("compare: an unknown measure", measure, ("mPA",))
    yield Bad("train: a run in --out", ("train", "run.toml", "--out", "run"), ("already holds a run", "resume run"))
    yield Bad("train: a file in --out", ("train", "run.toml", "--out", "file"), ("file",), put("file", "text"))
    below = ("train", "run.toml", "--out", "file/out")
    yield Bad("train: a file above --out", below, ("file", "another folder"), put("file", "text"))


def _questions() -> Iterator[Bad]:
    for name, arguments, says in (
        ("no question", (), ("Give a text, a picture or a vector", "or a filter")),
        ("two questions", ("parrot", "--vector", "a.npy"), ("text and vector were given",)),
        ("an empty text", ("",), ("The text is empty",)),
        ("a text of spaces", ("  \t ",), ("The text is empty",)),
        ("an unknown modality to find", ("parrot", "--find", "sounds"), ('"sounds" cannot be found',)),
        ("an unknown engine", ("parrot", "--engine", "annoy"), ('"annoy"', "flat")),
        ("a picture that is missing", ("--image", "none.png"), ('"none.png" does not exist',)),
        ("a vector that is missing", ("--vector", "none.npy"), ('"none.npy" does not exist',)),
    ):
        yield Bad(f"search: {name}", ("search", "run", *arguments), says)
    for name, options, word in (
        ("measure", ("--measure", "mPA@all"), "mPA"),
        ("measure without cutoff", ("--measure", "P@"), "P@"),
        ("measure with an unknown option", ("--measure", "mAP@all[ties=random]"), "ties"),
        ("evaluation", ("--evaluation", "GX"), '"GX" is not one of GG'),
        ("task", ("--task", "i2v"), '"i2v" is not one of i2t'),
        ("label", ("--ignore-label", "parot"), 'did you mean "parrot"'),
    ):
        yield Bad(f"evaluate: an unknown {name}", ("evaluate", "run", *options), (word,))


def _pictures() -> Iterator[Bad]:
    for name, content in {
        "empty": b"",
        "a text": b"not a picture",
        "bytes that are not text": NOT_TEXT,
        "a zip archive": a_zip(),
        "the first half": cut(_png()),
        "an SVG drawing": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
        "a PNG header alone": _png()[:33],
        "a PNG of 10^10 pixels": _png()[:16] + (100_000).to_bytes(4, "big") * 2 + _png()[24:],
    }.items():
        question = ("search", "run", "--image", "picture.png")
        says = ("picture.png", "cannot be read as an image", "PNG or JPEG")
        yield Bad(f"--image: {name}", question, says, put("picture.png", content))
    question = ("search", "run", "--image", "picture.png")
    yield Bad("--image: a folder", question, ("picture.png",), folder_instead("picture.png"))
    yield Bad("--image: a model of vectors", question, ("precomputed image features",), put("picture.png", _png()))


def _others() -> Iterator[Bad]:
    for name, command, says in (
        ("index: an archive and ids to remove", ("index", "run", "archive", "--remove", "x"), ("Leave ARCHIVE",)),
        ("index: no id", ("index", "run", "--remove", " , "), ("does not name an id",)),
        ("index: an unknown model", ("index", "run", "archive", "--model", "silo-9"), ("silo-9",)),
        ("index: an archive that is missing", ("index", "run", "nowhere"), ("nowhere",)),
        ("index: a name that leads out", ("index", "run", "archive", "--name", "../x"), ("../x",)),
        ("encode: an unknown ending", ("encode", "run", "--out", "codes.txt"), ("codes.txt", ".npz, .csv")),
        ("encode: an unknown modality", ("encode", "run", "--out", "c.csv", "--modality", "sound"), ("sound",)),
        ("encode: no modality", ("encode", "run", "--out", "c.csv"), ("--modality image or text",)),
        ("encode: an unknown archive", ("encode", "run", "glyfs", "--out", "c.csv"), ("glyfs",)),
        ("encode: an unknown model", ("encode", "run", "--out", "c.csv", "--model", "silo-9", "--modality", "text"),
         ("silo-9",)),
        ("export: no format", ("export", "run"), ("Add --onnx",)),
        ("list: an unknown kind", ("list", "locals"), ('did you mean "local"',)),
        ("list: an unknown method", ("list", "local", "dcmg"), ("dcmg",)),
        ("list: the card of a partition", ("list", "partition", "iid"), ("Only local and federated methods",)),
        ("data check: an unknown archive", ("data", "check", "glyfs"), ("glyfs",)),
        ("data check: --root of a folder", ("data", "check", "archive", "--root", "x"), ("--root",)),
        ("data check: --protocol of a folder", ("data", "check", "archive", "--protocol", "x"), ("--protocol",)),
        ("data check: digests of a name", ("data", "check", "glyphs", "--digest"), ("glyphs",)),
        ("data check: no files", ("data", "check", "mirflickr25k", "--root", "nowhere"), ("nowhere",)),
        ("data card: an unknown archive", ("data", "card", "glyfs"), ("glyfs",)),
        ("data card: an unknown protocol", ("data", "card", "mirflickr25k", "--protocol", "x"), ('"x"',)),
        ("data import: into another folder", ("data", "import", "archive", "--out", "run"), ("run already exists",)),
        ("data import: an unknown archive", ("data", "import", "glyfs", "--out", "out"), ("glyfs",)),
        ("new: an unknown method", ("new", "new.toml", "--local", "dcmg"), ("dcmg",)),
        ("new: an unknown federated method", ("new", "new.toml", "--federated", "fedavgg"), ("fedavgg",)),
        ("new: a file that exists", ("new", "run.toml"), ('"run.toml" already exists', "another name")),
        ("reproduce: an unknown table", ("reproduce", "fedcafe/table9"), ("table9",)),
        ("demo: an unknown key", ("demo", "--out", "out", "--set", "train.bach=3"), ("train.bach",)),
    ):  # fmt: skip
        needs = ("run",) if command[-1] == "run" else ()
        yield Bad(name, command, says, needs=needs)
    archive = ("data", "check", "archive")
    for name, content, word in (
        ("empty", b"", "no rows"),
        ("only a header", b"text,labels\n", "no rows"),
        ("UTF-16", b"\xff\xfea\0", "UTF-16"),
        ("a header that is not text", b"te\xffxt,labels\na,b\n", "not UTF-8"),
        ("no known column", b"a,b\n1,2\n", "names of columns"),
        ("a column twice", b"text,text\n1,2\n", "more than once"),
    ):
        yield Bad(f"metadata.csv: {name}", archive, ("metadata.csv", word), put("archive/metadata.csv", content))
    two = put("archive/metadata.jsonl", "{}")
    yield Bad("two files of metadata", archive, ("metadata.csv and metadata.jsonl",), two)
    parquet = both(removed("archive/metadata.csv"), put("archive/metadata.parquet", NOT_TEXT))
    yield Bad("metadata.parquet: not one", archive, ("metadata.parquet is damaged",), parquet)
    lines = both(removed("archive/metadata.csv", "archive/image.npy"), put("archive/metadata.jsonl", "[]\n3\nnull\n"))
    yield Bad("metadata.jsonl: no objects", archive, ("None of the 3 rows", "metadata.jsonl"), lines)


def _png() -> bytes:
    stream = io.BytesIO()
    Image.effect_noise((40, 40), 90).convert("RGB").save(stream, "PNG")
    return stream.getvalue()
