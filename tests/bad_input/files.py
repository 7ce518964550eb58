"""Every file that silohash reads, damaged in every way that a reader of its kind can meet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.bad_input.harness import (
    Bad,
    Make,
    a_zip,
    both,
    changed,
    cut,
    folder_instead,
    npy,
    npy_header,
    put,
    removed,
    replaced,
    safetensors,
    sql,
)

NOT_TEXT = b"\xff\xfe\x00\x81\x00"
SEARCH, REPORT, EVALUATE = ("search", "run", "parrot", "--find", "image"), ("report", "run"), ("evaluate", "run")
RESUME, COMPARE = ("resume", "run"), ("compare", "run", "other")
UNTRAINED = removed("run/model")
"""Makes `resume` read the checkpoint."""

FORMS = {"{}": "{}", "[]": "[]", "a number": "3", "null": "null", "a string": '"x"', "deep": "[" * 5000, "[{}]": "[{}]"}

JSON: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "run/partition.json": (EVALUATE, ()),
    "run/environment.json": (REPORT, ()),
    "run/curves.json": (REPORT, ("[]",)),
    "run/examples.json": (REPORT, ()),
    "run/checkpoint/state.json": (RESUME, ()),
    "run/model/model.json": (SEARCH, ()),
    "run/index/silos.json": (SEARCH, ()),
}
"""File -> the command that reads it, and the forms that it may have."""

TENSORS = {
    "run/model/weights-000.safetensors": EVALUATE,
    "run/model/features-image.safetensors": EVALUATE,
    "run/model/features-text.safetensors": SEARCH,
    "run/checkpoint/server.safetensors": RESUME,
    "run/checkpoint/silos.safetensors": RESUME,
    "run/per_query.safetensors": COMPARE,
}

OF_ANY_FILE = {"empty": b"", "bytes that are not text": NOT_TEXT, "a zip archive": a_zip()}
OF_TENSORS = {
    "a header of 10^15 bytes": safetensors("{}", size=10**15),
    "a header that is not JSON": safetensors("{'a': 1}"),
    "a header that is a list": safetensors("[]"),
    "an array longer than the file": safetensors('{"x":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]}}'),
    "an array of an unknown type": safetensors('{"x":{"dtype":"F99","shape":[16],"data_offsets":[0,64]}}'),
    "a shape that does not fit": safetensors('{"x":{"dtype":"F32","shape":[3],"data_offsets":[0,64]}}'),
    "metadata that is a list": safetensors(
        '{"__metadata__":{"about":"[]"},"x":{"dtype":"F32","shape":[16],"data_offsets":[0,64]}}'
    ),
    "another array": safetensors('{"x":{"dtype":"F32","shape":[16],"data_offsets":[0,64]}}'),
}
OF_NPY = {
    "10^15 rows": npy_header("'<f4'", "(1000000000000000, 16)"),
    "more rows than int64 counts": npy_header("'<f4'", "(99999999999999999999,)"),
    "a negative length": npy_header("'<f4'", "(-4,)"),
    "Python objects": npy_header("'|O'", "(1,)"),
    "an unknown type": npy_header("'nonsense'", "(4,)"),
    "a header that is an expression": npy_header("__import__('os')", "(4,)"),
    "a version of the future": b"\x93NUMPY\x09\x00" + bytes(100),
    "words": npy(np.array(["a", "b"])),
}


def rows() -> Iterator[Bad]:
    """Yield a row per file and damage."""
    yield from _json()
    yield from _tensors()
    yield from _records()
    yield from _index()
    yield from _policies()
    yield from _arrays()
    yield from _native()
    yield from _texts()


def _damaged(path: str, command: tuple[str, ...], damage: str, make: Make, *says: str) -> Bad:
    needed = UNTRAINED if command == RESUME else both()
    return Bad(f"{path}: {damage}", command, says or (path, "damaged"), both(make, needed))


def _of_any_file(path: str, command: tuple[str, ...], *, except_for: tuple[str, ...] = ()) -> Iterator[Bad]:
    """Yield what can be wrong with any file: its content is nothing, noise or half, or it is a folder."""
    for damage, content in OF_ANY_FILE.items():
        if damage not in except_for:
            yield _damaged(path, command, damage, put(path, content))
    if "the first half" not in except_for:
        yield _damaged(path, command, "the first half", changed(path, cut))
    yield _damaged(path, command, "a folder", folder_instead(path), path, "is a folder")


def _json() -> Iterator[Bad]:
    for path, (command, allowed) in JSON.items():
        yield from _of_any_file(path, command)
        for damage, content in FORMS.items():
            if damage not in allowed:
                yield _damaged(path, command, damage, put(path, content))
    for path, old, new in (
        ("run/partition.json", '"items": ', '"items": 1'),
        ("run/partition.json", '"rows": "', '"rows": "5-3 '),
        ("run/partition.json", '"schema": 1', '"schema": 7'),
        ("run/partition.json", '"disjoint": true', '"disjoint": "yes"'),
        ("run/environment.json", '"packages": {', '"packages": [], "x": {'),
        ("run/examples.json", '"task": "', '"task": "x'),
        ("run/examples.json", '"picture": "', '"picture": "https://'),
        ("run/checkpoint/state.json", '"round": ', '"round": -0.5'),
        ("run/checkpoint/state.json", '"server": "', '"waiter": "'),
        ("run/model/model.json", '"hidden": 16', '"hidden": "16"'),
        ("run/model/model.json", '"kind": "mlp"', '"kind": "rnn"'),
        ("run/model/model.json", '"global"', '"globe"'),
        ("run/model/model.json", '"bits": 16', '"bits": 7'),
    ):
        yield _damaged(path, JSON[path][0], f"{old} -> {new}", replaced(path, old, new), path.rpartition("/")[2])
    for path in ("run/partition.json", "run/environment.json", "run/model/model.json"):
        yield _damaged(path, JSON[path][0], "missing", removed(path), path, "missing")
    for name in ("checkpoint/state.json", "model/model.json", "examples.json", "index/silos.json"):
        path = f"run/{name}"
        make = replaced(path, '"format_version": ', '"format_version": 99')
        yield _damaged(path, JSON[path][0], "of another version", make, "this silohash reads version")
    yield _damaged(
        "run/model/model.json",
        EVALUATE,
        "another width",
        replaced("run/model/model.json", '"hidden": 16', '"hidden": 17'),
        "fit",
    )


def _tensors() -> Iterator[Bad]:
    for path, command in TENSORS.items():
        yield from _of_any_file(path, command)
        for damage, content in OF_TENSORS.items():
            yield _damaged(path, command, damage, put(path, content), "run")
        says = ("has no figures per query",) if command == COMPARE else (path, "missing")
        yield _damaged(path, command, "missing", removed(path), *says)


def _records() -> Iterator[Bad]:
    path = "run/rounds.jsonl"
    yield from _of_any_file(path, REPORT, except_for=("empty", "the first half"))
    for damage, line in FORMS.items():
        yield _damaged(
            path, REPORT, f"a line that is {damage}", changed(path, lambda c, x=line: x.encode() + b"\n" + c)
        )
    for old, new in (
        ('"loss": ', '"loss": "x'), ('"silos": [', '"silos": [3, '), ('"round": 0', '"round": null'), ("}\n", "}\n}\n")
    ):  # fmt: skip
        yield _damaged(path, REPORT, f"{old!r} -> {new!r}", replaced(path, old, new), "rounds.jsonl, line")
    path = "run/results.csv"
    yield from _of_any_file(path, REPORT, except_for=("empty",))
    for damage, make in {
        "empty": put(path, b""),
        "other columns": replaced(path, "run,dataset", "run,date"),
        "a row too long": replaced(path, "\nrun,", "\nrun,,"),
        "a word as a value": changed(path, lambda content: content.replace(b",GG,", b",GX,")),
        "a task that is none": changed(path, lambda content: content.replace(b",t2i,", b",t2v,")),
        "a truth value that is none": changed(path, lambda content: content.replace(b",False,", b",maybe,")),
        "an open quotation mark": replaced(path, "\nrun,", '\n"run,'),
        "no end of the last line": changed(path, bytes.rstrip),
    }.items():
        yield _damaged(path, REPORT, damage, make, path)
    yield _damaged(path, REPORT, "missing", removed(path), path, "silohash evaluate")
    yield _damaged(path, COMPARE, "missing, compare", removed(path), "run", "silohash evaluate")
    path = "run/config.toml"
    for command in (RESUME, REPORT, EVALUATE, ("index", "run"), ("encode", "run", "--out", "codes.csv")):
        yield _damaged(path, command, f"not TOML, {command[0]}", put(path, "[train\n"), path, "not valid TOML")
    yield _damaged(path, EVALUATE, "bytes that are not text", put(path, NOT_TEXT), path, "not valid TOML")
    yield _damaged(path, EVALUATE, "empty", put(path, b""), path, "[data] is missing")
    yield _damaged(path, EVALUATE, "a folder", folder_instead(path), path)


def _index() -> Iterator[Bad]:
    path = "run/index/silo-1/image.sqlite"
    remove = ("index", "run", "--remove", "item-001")
    for damage, make in {
        "empty": put(path, b""),
        "bytes that are not text": put(path, NOT_TEXT),
        "a zip archive": put(path, a_zip()),
        "the first half": changed(path, cut),
        "a folder": folder_instead(path),
        "an SQLite file of another program": both(removed(path), sql(path, "CREATE TABLE a (b)")),
        "a version of the future": sql(path, "PRAGMA user_version = 99"),
        "no head": sql(path, "DELETE FROM head"),
        "two heads": sql(path, "INSERT INTO head SELECT * FROM head"),
        "a changed head": sql(path, "UPDATE head SET content = replace(content, '16', '32')"),
        "a head that is not text": sql(path, "UPDATE head SET content = x'ff00'"),
        "no table of codes": sql(path, "DROP TABLE log"),
    }.items():
        yield Bad(f"{path}: {damage}, search", SEARCH, ("silo-1 did not answer", path), make, ends=0)
        yield Bad(f"{path}: {damage}, index --remove", remove, (path,), make)
    for damage, statement in {
        "a log entry is missing": "DELETE FROM log",
        "codes of another width": "UPDATE log SET codes = substr(codes, 1, 3)",
        "keys that are not numbers": "UPDATE log SET keys = 'x'",
        "an entry twice": "INSERT INTO log SELECT entry + 1, keys, codes, checksum FROM log",
    }.items():
        yield Bad(f"{path}: {damage}", SEARCH, ("silo-1 did not answer", path, "damaged"), sql(path, statement), ends=0)
    source = "run/index/silo-1/source.json"
    for damage, content in {**OF_ANY_FILE, **FORMS}.items():
        yield Bad(f"{source}: {damage}", SEARCH, ("silo-1 did not answer", source), put(source, content), ends=0)


def _policies() -> Iterator[Bad]:
    path = "run/policies/silo-1.toml"
    for damage, content in {
        "not TOML": b"max_results =",
        "bytes that are not text": NOT_TEXT,
        "an unknown key": b"max_result = 3",
        "a word as a number": b'max_results = "3"',
        "a truth value as a number": b"max_results = true",
        "zero results": b"max_results = 0",
        "a negative distance": b"max_distance_bits = -1",
        "a number as a list": b"fields = 3",
        "an unknown field": b'fields = ["captions"]',
        "a list of numbers": b"fields = [1]",
        "an unknown modality": b'modalities = ["sound"]',
        "a table": b"[max_results]\na = 1",
        "a date": b"max_results = 2020-01-01",
    }.items():
        yield Bad(f"{path}: {damage}", SEARCH, (path,), put(path, content))
    yield Bad(f"{path}: a folder", SEARCH, (path, "is a folder"), folder_instead(path))
    yield Bad("a policy of no silo", SEARCH, ("silo-9.toml", "silo-1"), put("run/policies/silo-9.toml", ""))


def _arrays() -> Iterator[Bad]:
    of_npy = {**OF_ANY_FILE, **OF_NPY, "a text": b"1 2 3", "the first half": cut(npy(np.zeros(100)))}
    for damage, content in of_npy.items():
        question = ("search", "run", "--vector", "question.npy")
        yield Bad(f"--vector: {damage}", question, ("question.npy",), put("question.npy", content))
        check = ("data", "check", "archive")
        yield Bad(f"image.npy: {damage}", check, ("archive/image.npy",), put("archive/image.npy", content))
    for damage, array, word in (
        ("another width", np.zeros(7), "7"),
        ("no number", np.zeros(0), "0"),
        ("two vectors", np.zeros((2, 16)), "32"),
        ("complex numbers", np.zeros(16, complex), "complex"),
        ("dates", np.zeros(16, "datetime64[s]"), "datetime64"),
    ):
        question = ("search", "run", "--vector", "question.npy")
        yield Bad(f"--vector: {damage}", question, (word,), put("question.npy", npy(array)))
    for damage, array, word in (
        ("one row too few", np.zeros((47, 4)), "47 rows"),
        ("four axes", np.zeros((48, 2, 2, 2)), "(48, 2, 2, 2)"),
        ("one axis", np.zeros(48), "(48,)"),
        ("no column", np.zeros((48, 0)), "(48, 0)"),
    ):
        check = ("data", "check", "archive")
        yield Bad(f"image.npy: {damage}", check, ("image.npy", word), put("archive/image.npy", npy(array)))


def _native() -> Iterator[Bad]:
    path, command = "native/manifest.json", ("data", "check", "native")
    for damage, content in {**OF_ANY_FILE, **FORMS}.items():
        yield Bad(f"{path}: {damage}", command, ("native",), put(path, content))
    yield Bad(f"{path}: the first half", command, (path, "damaged"), changed(path, cut))
    yield Bad(f"{path}: a folder", command, ("native",), folder_instead(path))
    for old, new in (
        ('"items": 20', '"items": "20"'),
        ('"items": 20', '"items": 21'),
        ('"version": 1', '"version": 2'),
        ('"format": "', '"format": "x'),
        ('"bytes": ', '"bytes": 1'),
        ('"kind": "', '"kind": "x'),
        ('"card": {', '"card": [], "x": {'),
        ('"ids": "', '"ids": "x'),
        ('"splits": [', '"splits": [3, '),
    ):
        yield Bad(f"{path}: {old} -> {new}", command, ("native",), replaced(path, old, new))
    for name in ("ids.txt", "split.txt", "label.npy", "present.npy", "columns.jsonl"):
        yield Bad(f"native/{name}: changed", command, (f"native/{name}",), put(f"native/{name}", NOT_TEXT))
        yield Bad(f"native/{name}: missing", command, (f"native/{name}", "missing"), removed(f"native/{name}"))


def _texts() -> Iterator[Bad]:
    remove = ("index", "run", "--remove", "@ids.txt")
    yield Bad("--remove @FILE: missing", remove, ("ids.txt is missing",))
    yield Bad("--remove @FILE: not text", remove, ("ids.txt is damaged", "not UTF-8"), put("ids.txt", NOT_TEXT))
    yield Bad("--remove @FILE: a folder", remove, ("ids.txt is a folder",), folder_instead("ids.txt"))
    yield Bad("--remove @FILE: empty", remove, ("does not name an id",), put("ids.txt", ""))
    check = ("data", "check", "archive")
    yield Bad("labels.txt: not text", check, ("archive/labels.txt", "not UTF-8"), put("archive/labels.txt", NOT_TEXT))
    vocabulary = ("train", "run.toml", "--out", "out", "--set", "features.text.vocabulary=words.txt")
    yield Bad("vocabulary: missing", vocabulary, ("words.txt is missing",))
    yield Bad("vocabulary: not text", vocabulary, ("words.txt is damaged",), put("words.txt", NOT_TEXT))
    yield Bad("vocabulary: a folder", vocabulary, ("words.txt is a folder",), folder_instead("words.txt"))
    digests = ("data", "check", "archive", "--digest")
    for damage, content in {"{": "{", "[]": "[]", "numbers": '{"metadata.csv": 3}', "not text": NOT_TEXT}.items():
        says = ("archive/checksums.json is damaged", "--write-checksums")
        yield Bad(f"checksums.json: {damage}", digests, says, put("archive/checksums.json", content))
