"""Configs, studies and settings that cannot be meant: unknown keys, wrong types, values out of range, NaN, nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bad_input.files import NOT_TEXT
from tests.bad_input.harness import Bad, both, folder_instead, put, removed, replaced

TRAIN = ("train", "run.toml", "--out", "out")
PARTITION = ("partition", "run.toml")

SETTINGS: dict[str, tuple[str, ...]] = {
    "sead=1": ('unknown key "sead"', 'did you mean "seed"'),
    "seed=-1": ("seed", "greater than or equal to 0", "got -1"),
    "seed=9223372036854775808": ("seed", "less than 9223372036854775808"),
    "seed=1.5": ("whole number (got 1.5)", "Write seed = 0"),
    "seed=nan": ("seed", "got nan"),
    "seed=many": ('whole number (got "many")', "Write seed = 0"),
    "seed=2020-01-01": ("seed", "whole number"),
    "data=3": ("data", "3"),
    "data.pth=a": ('unknown key "data.pth"', 'did you mean "path"'),
    "data.path=[]": ("data.path",),
    "data.path=nowhere": ("nowhere is not a folder", "metadata.csv"),
    "data.path=run.toml": ("run.toml is not a folder",),
    "data.name=glyphs": ("set either name",),
    "data.modality=sound": ("data.modality", "'image' or 'text'", "got 'sound'"),
    "data.protocol=x": ("protocol",),
    "data.options.x=1": ('"x"',),
    "features.image.kind=pixel": ('"pixel"', 'did you mean "pixels"'),
    "features.image.kind=pixels": ("image",),
    "features.text.kind=given": ("text",),
    "features.text.words=3": ('"words"',),
    "features.text.buckets=0": ("buckets",),
    "features.text.buckets=x": ("buckets",),
    "features.text.vocabulary=[1]": ("vocabulary",),
    "features.sound.kind=x": ('unknown key "features.sound"',),
    "features.image=3": ("must be a table (got 3)", 'Write image = {kind = "auto"}'),
    "model.hidden=7": ("model.hidden", "greater than or equal to 8", "got 7"),
    "model.hidden=16385": ("model.hidden", "less than or equal to 16384"),
    "model.hidden=x": ("model.hidden", "whole number", "Write hidden = 512"),
    "model.dropout=1.0": ("model.dropout", "less than 1", "got 1.0"),
    "model.dropout=-0.1": ("model.dropout", "greater than or equal to 0"),
    "model.dropout=nan": ("model.dropout", "got nan"),
    "model.hiden=8": ('unknown key "model.hiden"', 'did you mean "hidden"'),
    "model.image.backbone=clip": ("backbone", "clip"),
    "model.image.backbone=cnnf": ("model.image",),
    "partition.kind=even": ('no partition "even"', "Available"),
    "partition.silos=0": ("partition.silos", "greater than or equal to 1", "got 0"),
    "partition.silos=4000": ("silos is 4000", "Use fewer silos"),
    "partition.silos=2.5": ("partition.silos", "got 2.5"),
    "partition.silos=[]": ("partition.silos",),
    "partition.beta=1": ('does not take "beta"',),
    "partition.minimum=-1": ("minimum",),
    "partition.minimum=999": ("minimum", "999"),
    "partition.minimum=x": ("minimum",),
    "partition.missing_image=2": ("missing_image",),
    "partition.missing_image=nan": ("missing_image",),
    "partition.missing_image=1": ("image",),
    "partition.missing_image=x": ("missing_image",),
    "local.bits=7": ("local.bits", "greater than or equal to 8", "got 7"),
    "local.bits=300": ("local.bits", "less than or equal to 256", "got 300"),
    "local.bits=sixteen": ("local.bits", "whole number", "Write bits = 64"),
    "local.bits=nan": ("local.bits", "got nan"),
    "local.bits=[16]": ("local.bits", "whole number", "(got [16])"),
    "local.name=dcmg": ('did you mean "dcmh"',),
    "local.name=": ('""',),
    "local.name=3": ("local.name", "string", "got 3"),
    "local.preset=papers": ('no preset "papers"', 'did you mean "paper"'),
    "local.gama=1": ('unknown key "local.gama"',),
    "federated.name=fedavgg": ('did you mean "fedavg"',),
    "federated.rounds=0": ("federated.rounds", "greater than or equal to 1"),
    "federated.rounds=1.5": ("federated.rounds", "whole number", "(got 1.5)"),
    "federated.local_epochs=-2": ("federated.local_epochs", "got -2"),
    "federated.fraction=0": ("federated.fraction", "greater than 0"),
    "federated.fraction=1.1": ("federated.fraction", "less than or equal to 1"),
    "federated.fraction=nan": ("federated.fraction", "got nan"),
    "federated.weight_cap=0": ("federated.weight_cap", "greater than 0"),
    "federated.robust.rule=mean": ("federated.robust.rule", "median"),
    "federated.robust.faulty=0.5": ("federated.robust",),
    "federated.robust=3": ("federated.robust",),
    "federated.server.optimizer=adam": ("federated.server.optimizer", "fedadam"),
    "federated.server.learning_rate=0": ("federated.server",),
    "federated.mu=1": ('unknown key "federated.mu"',),
    "fedrated.rounds=3": ('unknown key "fedrated"', 'did you mean "federated"'),
    "train.bach=3": ('unknown key "train.bach"', 'did you mean "batch"'),
    "train.batch=many": ("train.batch", "whole number", "Write batch = 128"),
    "train.batch=1": ("train.batch", "greater than or equal to 2"),
    "train.optimizer=adm": ("train.optimizer", "got 'adm'"),
    "train.momentum=1": ("train.momentum", "less than 1"),
    "train.learning_rate=0": ("train.learning_rate", "greater than 0"),
    "train.learning_rate=inf": ("train.learning_rate", "finite"),
    "train.learning_rate=nan": ("train.learning_rate", "got nan"),
    "train.decay=perhaps": ("train.decay", "'cosine'", "got 'perhaps'"),
    "train.decay=1": ("train.decay", "'cosine'", "got 1"),
    "train.final_learning_rate=0": ("train.final_learning_rate", "greater than 0"),
    "train.decay_factor=1.5": ("train.decay_factor", "less than or equal to 1"),
    "train.decay_epochs=0": ("train.decay_epochs", "greater than or equal to 1"),
    "train.decay_epochs=5": ("train.decay_epochs", 'train.decay = "steps"'),
    "model.widths.text=[4]": ("model.widths.text", "greater than or equal to 8"),
    "model.widths.text=[]": ("model.widths.text", "at least"),
    "model.widths.text=64": ("model.widths.text", "a list"),
    "model.widths.sound=[64]": ("model.widths.sound", "'image'"),
    "train.weight_decay=-1": ("train.weight_decay", "got -1"),
    "train.clip_norm=-1": ("train.clip_norm", "got -1"),
    "train.device=gpu7": ("gpu7",),
    "train.precision=float64": ("train.precision", "got 'float64'"),
    "train.workers=65": ("train.workers", "less than or equal to 64"),
    "train.threads=-1": ("train.threads", "got -1"),
    "evaluate.measures=[]": ("evaluate.measures", "a list with at least one item", "mAP@all"),
    "evaluate.measures=['mPA@all']": ("mPA",),
    "evaluate.measures=['P@0']": ("P@0",),
    "evaluate.measures=3": ("evaluate.measures",),
    "evaluate.evaluations=['GX']": ("evaluate.evaluations", '"GX" is not one of'),
    "evaluate.tasks=['i2v']": ("evaluate.tasks", '"i2v" is not one of'),
    "evaluate.tasks=[]": ("tasks",),
    "evaluate.ignore_labels=['parot']": ('no label "parot"', 'did you mean "parrot"'),
    "evaluate.validation=1": ("evaluate.validation", "less than 1"),
    "evaluate.validation=nan": ("evaluate.validation", "got nan"),
    "evaluate.no_hits=drop": ("evaluate.no_hits", "'zero' or 'skip'"),
    "evaluate.own_item=keep": ("evaluate.own_item", "'exclude' or 'count'"),
    "nonsense": ("section.key=value",),
    "=3": ("section.key=value",),
    "train..batch=3": ("section.key=value",),
    "seed.x=3": ("seed: the value must be a whole number (got {x = 3}). Write seed = 0.",),
}
"""A value of ``--set`` -> words of its refusal."""

CONFIGS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty": (b"", ("run.toml", "[data] is missing")),
    "not TOML": (b"[train\n", ("run.toml is not valid TOML", "line 1")),
    "bytes that are not text": (NOT_TEXT, ("run.toml is not valid TOML", "not UTF-8")),
    "a key twice": (b"seed = 1\nseed = 2\n", ("run.toml is not valid TOML", "line 2")),
    "a table twice": (b"[data]\n[data]\n", ("run.toml is not valid TOML", "line 2")),
    "JSON": (b'{"data": {"name": "glyphs"}}', ("run.toml is not valid TOML", "line 1")),
    "tables nested too deep": (b"a = " + b"[" * 5000, ("run.toml is not valid TOML",)),
    "a NUL byte": (b"[data]\nname = \0", ("run.toml is not valid TOML", "line 2")),
    "a list of tables": (b'[[data]]\nname = "glyphs"\n', ("run.toml: data",)),
    "nothing named": (b"[data]\n", ("run.toml", "data")),
    "an unknown archive": (b'[data]\nname = "glyfs"\n', ("glyfs", "glyphs")),
    "a byte order mark and an error": (b"\xef\xbb\xbf[data]\nnme = 3\n", ('unknown key "data.nme"',)),
}

STUDIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ('title = "Tiny"', "titel = 3", ("titel",)),
    ('title = "Tiny"', "title = 3", ("title", "got 3")),
    ("seeds = [0, 1]", "seeds = []", ("seeds",)),
    ("seeds = [0, 1]", "seeds = [0, 0]", ("seed",)),
    ("seeds = [0, 1]", 'seeds = "0,1"', ("seeds",)),
    ("seeds = [0, 1]", "seeds = [-1]", ("seed",)),
    ('name = "bits"', 'name = "method"', ("method",)),
    ('key = "local.bits"', 'key = "local.bit"', ("local.bit",)),
    ("values = [16, 32]", "values = []", ("bits",)),
    ("values = [16, 32]", "values = [16, 16]", ("16",)),
    ("values = [16, 32]", "values = [16, 7]", ("7",)),
    ("values = [16, 32]", "values = 16", ("values",)),
    ('rows = ["method"]', 'rows = ["methods"]', ("methods", "method")),
    ('rows = ["method"]', "rows = 3", ("rows",)),
    ('name = "FedAvg"', 'name = "Local"', ("Local",)),
    ('method = "FedAvg"', 'method = "FedAvgg"', ("FedAvgg", "FedAvg")),
    ('"federated.rounds" = 3', '"federated.rounds" = 0', ("federated.rounds",)),
    ("[table]", "[tables]", ("tables",)),
    ("[base.set]", "[base.sets]", ("sets",)),
)
"""What is replaced in the study's file, by what, and words of the refusal."""


def rows() -> Iterator[Bad]:
    """Yield a row per setting, config and study."""
    for setting, says in SETTINGS.items():
        yield Bad(f"--set {setting}", (*TRAIN, "--set", setting), says)
    for name, (content, says) in CONFIGS.items():
        for command in (TRAIN, PARTITION):
            yield Bad(f"a config: {name}, {command[0]}", command, says, put("run.toml", content))
    yield from _partitions()
    yield from _studies()


def _partitions() -> Iterator[Bad]:
    for name, settings, says in (
        ("dirichlet without training items", ("kind=dirichlet", "beta=0"), ("beta",)),
        ("dirichlet, beta NaN", ("kind=dirichlet", "beta=nan"), ("beta",)),
        ("dirichlet, beta a word", ("kind=dirichlet", "beta=x"), ("beta",)),
        ("dirichlet, an unknown primary", ("kind=dirichlet", "primary=x"), ("primary",)),
        ("shards, no classes", ("kind=shards", "classes=0"), ("classes",)),
        ("shards, too many classes", ("kind=shards", "classes=99"), ("classes",)),
        ("quantity, beta below 0", ("kind=quantity", "beta=-1"), ("beta",)),
        ("nested, fractions above 1", ("kind=nested", "fractions=[2]"), ("fractions",)),
        ("nested, fractions a word", ("kind=nested", "fractions=x"), ("fractions",)),
        ("nested, no fractions", ("kind=nested", "fractions=[]"), ("fractions",)),
        ("column, none named", ("kind=column",), ("column",)),
        ("column, unknown", ("kind=column", "column=plaze"), ("plaze", "place")),
        ("column, other groups", ("kind=column", "column=place", "groups={a=3}"), ("groups",)),
        ("pseudo, no clusters", ("kind=pseudo", "clusters=0"), ("clusters",)),
        ("missing more than all", ("missing_image=0.7", "missing_text=0.7"), ("missing_image", "missing_text")),
    ):
        overrides = [part for setting in settings for part in ("--set", f"partition.{setting}")]
        yield Bad(f"partition: {name}", (*PARTITION, *overrides), says)
    yield Bad("--plot of an unknown kind", (*PARTITION, "--plot", "plot.doc"), ("plot.doc",))
    yield Bad(
        "a config that is missing", ("train", "none.toml"), ('"none.toml" does not exist', "silohash new none.toml")
    )
    yield Bad("a config that is a folder", TRAIN, ("is a folder",), folder_instead("run.toml"))
    yield Bad("an archive that is missing", TRAIN, ("archive is not a folder",), removed("archive"))
    yield Bad(
        "an archive that is empty", TRAIN, ("archive is empty",), both(removed("archive"), folder_instead("archive"))
    )
    for seeds, word in (("0,0", "repeats"), ("-1", "below 0"), ("a", "whole numbers"), ("1.5", "whole numbers")):
        yield Bad(f"--seeds {seeds}", (*TRAIN, f"--seeds={seeds}"), (f'--seeds "{seeds}"', word))


def _studies() -> Iterator[Bad]:
    study = ("study", "study.toml", "--out", "out")
    for old, new, says in STUDIES:
        yield Bad(f"a study: {new}", study, ("study.toml", *says), replaced("study.toml", old, new), ("archive",))
    for name, content in {
        "empty": b"",
        "not TOML": b"[[axis]",
        "not text": NOT_TEXT,
        "no axis": b'title = "x"',
    }.items():
        yield Bad(f"a study: {name}", study, ("study.toml",), put("study.toml", content))
    yield Bad("a study: a folder", study, ("is a folder",), folder_instead("study.toml"))
    yield Bad("a study: missing", ("study", "none.toml"), ('no study file "none.toml"',))
    for only in ("method", "method=FedAvgg", "methods=FedAvg", "=x"):
        yield Bad(f"--only {only}", (*study, "--only", only), (only.split("=")[0],), needs=("archive",))
    sweep = ("sweep", "run.toml", "--out", "out")
    for over, word in (
        ("local.bits", "section.key=value,value"),
        ("local.bits=", "section.key=value,value"),
        ("local.bit=16,32", "local.bit"),
        ("local.bits=16,7", "7"),
        ("=16,32", "section.key=value"),
    ):
        yield Bad(f"--over {over}", (*sweep, "--over", over), (word,))
