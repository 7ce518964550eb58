"""The agreement of silos before the first round equals what one machine computes from all items."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from silohash.base.errors import ModalityNeeded, NotSupported, SettingNeeded, SilosDiffer
from silohash.data.partitions.base import partition
from silohash.methods.message import Message
from silohash.run.config.load import load_resolved
from silohash.run.folder import archive_of
from silohash.training.experiment import prepare_run
from silohash.training.sites.plan import ANNOUNCEMENTS, Plan, announcements, check_separable, described, unusable
from tests.runs import same_arrays, tiny, write_archive
from tests.sites import NAMES, archives_with_pictures, site_archives
from tests.unit.models.test_cnnf import narrow_cnnf


def resolved(archive: Path, **sections: object):
    return load_resolved(tiny(archive, partition={"kind": "column", "column": "place"}, **sections))


def descriptions(archives: list[Path]) -> list[Message]:
    messages = []
    for number, path in enumerate(archives):
        own = resolved(path)
        messages.append(described(archive_of(own.config.data), own, number, NAMES))
    return messages


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    root = tmp_path_factory.mktemp("plan")
    pooled = write_archive(root / "pooled", count=90, text="words")
    return pooled, site_archives(pooled, root / "sites")


def test_merged_plan_gives_the_inputs_of_one_machine(archives: tuple[Path, list[Path]]) -> None:
    pooled, apart = archives
    own = resolved(pooled)
    archive = archive_of(own.config.data)
    parts = partition(archive, "column", 3, own.config.seed, **own.config.partition.parameters())
    whole, featurizers = prepare_run(archive, parts, own)
    given = Plan.merged([Message.decode(message.encode()) for message in descriptions(apart)], NAMES)
    plan = Plan.decode(Message.decode(given.encode().encode()))
    server = plan.server_inputs(own)
    assert server.spec == whole.spec
    assert server.silos == whole.silos
    assert server.info() == whole.info()
    assert same_arrays(server.arrays, {name: whole.arrays[name] for name in ("label_counts", "label_items")})
    for modality, featurizer in featurizers.items():
        assert same_arrays(plan.featurizers[modality].state()[0], featurizer.state()[0])
    for number, path in enumerate(apart):
        silo = plan.silo_inputs(archive_of(resolved(path).config.data), resolved(path), number)
        assert silo.spec == whole.spec
        for mine, other in zip(
            silo.silo(number, torch.device("cpu")), whole.silo(number, torch.device("cpu")), strict=True
        ):
            assert mine.name == other.name
            for name in ("image", "text", "labels", "has_image", "has_text"):
                assert torch.equal(getattr(mine, name), getattr(other, name))
            assert mine.federation.items == other.federation.items
            assert torch.equal(mine.federation.counts, other.federation.counts)


@pytest.mark.parametrize("freeze", [False, True])
def test_published_networks_travel_with_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, freeze: bool) -> None:
    pooled, apart = archives_with_pictures(tmp_path, 12)
    image = {"backbone": "cnnf", "weights": str(narrow_cnnf(tmp_path, monkeypatch)), "freeze": freeze}
    settings: dict[str, object] = {
        "features": {"image": {"kind": "pixels", "channels": 3, "size": 224}}, "model": {"image": image},
    }  # fmt: skip
    own = resolved(pooled, **settings)
    archive = archive_of(own.config.data)
    parts = partition(archive, "column", 3, own.config.seed, **own.config.partition.parameters())
    whole, _ = prepare_run(archive, parts, own)
    sites = [resolved(path, **settings) for path in apart]
    messages = [described(archive_of(site.config.data), site, number, NAMES) for number, site in enumerate(sites)]
    made = Plan.merged(messages, NAMES).with_networks(own)
    Path(image["weights"]).unlink()
    plan = Plan.decode(Message.decode(made.encode().encode()))
    inputs = [plan.silo_inputs(archive_of(site.config.data), site, number) for number, site in enumerate(sites)]
    for prepared in (plan.server_inputs(own), *inputs):
        check_separable(prepared.resolved)
        assert prepared.spec == whole.spec
        assert same_arrays(prepared.published, whole.published)
    assert whole.published["image/conv1.weight"].any()
    with pytest.raises(SettingNeeded):
        Plan.merged(messages, NAMES).with_networks(own)


def test_a_description_holds_sums_and_no_items(archives: tuple[Path, list[Path]]) -> None:
    first = descriptions(archives[1])[0]
    assert first.counts == {"training": 12, "validation": 3}
    assert {name.partition("/")[0] for name in first.arrays()} == {"sums"}
    assert not any(array.shape[:1] == (12,) for array in first.sums.values())


def test_descriptions_that_cannot_be_used_are_told_apart(archives: tuple[Path, list[Path]]) -> None:
    first = descriptions(archives[1])[0]
    assert unusable(Message.decode(first.encode())) is None
    counts, items = (first.sums[f"labels/{name}"] for name in ("label_counts", "label_items"))
    image = next(name for name in first.sums if name.startswith("image/"))
    for section, value, reason in (
        ("notes", {}, "it does not list the names of its labels"),
        ("notes", {"labels": "[1"}, "it does not list the names of its labels"),
        ("notes", {"labels": "[1]"}, "it does not list the names of its labels"),
        ("notes", {"labels": "[" * 100_000}, "it does not list the names of its labels"),
        ("notes", {**first.notes, "features/text": "3"}, "it does not describe its text features"),
        ("counts", {"training": -1, "validation": 0}, "its count of training is not between 0 and 2^53"),
        ("counts", {"training": 3, "validation": 10**400}, "its count of validation is not between 0 and 2^53"),
        ("sums", {"labels/label_counts": counts}, "counts of its labels are missing"),
        ("sums", {"labels/label_counts": counts[1:]}, "labels/label_counts does not hold counts of its labels"),
        ("sums", {"labels/label_counts": counts / 2}, "labels/label_counts does not hold counts of its labels"),
        ("sums", {"labels/label_items": -items}, "labels/label_items does not hold counts of its labels"),
        (
            "sums",
            {"labels/label_counts": counts + 10**9, "labels/label_items": items},
            "labels/label_counts does not hold counts of its labels",
        ),
        ("sums", {"labels/more": items}, "labels/more does not hold counts of its labels"),
        ("sums", {**first.sums, image: first.sums[image] * np.nan}, f"{image} holds NaN or infinite values"),
    ):
        assert unusable(replace(first, **{section: value})) == reason


def test_a_description_under_privacy_holds_nothing_of_the_items(archives: tuple[Path, list[Path]]) -> None:
    path = archives[1][0]
    privacy = {
        "exchange": {"privacy": {"unit": "record"}}, "local": {"name": "csq"}, "evaluate": {"validation": 0.0},
        "features": {"image": {"standardize": False, "equal_lengths": True}},
    }  # fmt: skip
    private, plain = (
        described(archive_of(own.config.data), own, 0, NAMES) for own in (resolved(path, **privacy), resolved(path))
    )
    assert private.sums.keys() < plain.sums.keys()
    assert not any(array.any() for array in private.sums.values())
    assert all(array.any() for array in plain.sums.values())


def test_labels_that_one_silo_lacks_are_counted_as_zero(archives: tuple[Path, list[Path]]) -> None:
    messages = descriptions(archives[1])
    renamed = replace(
        messages[0], notes={**messages[0].notes, "labels": messages[0].notes["labels"].replace("violin", "zither")}
    )
    plan = Plan.merged([renamed, *messages[1:]], NAMES)
    assert "zither" in plan.labels
    assert "violin" in plan.labels
    total = sum(int(message.sums["labels/label_counts"].sum()) for message in messages)
    assert plan.sums["label_counts"].sum() == total
    assert plan.sums["label_items"][0] == 60


def test_labels_that_silos_typed_differently_are_one(archives: tuple[Path, list[Path]]) -> None:
    messages = descriptions(archives[1])
    before = Plan.merged(messages, NAMES)
    for typed in ("violin\u200b", "\u00a0violin", "vio\u00adlin", "vio\u200dlin"):
        notes = {
            **messages[0].notes,
            "labels": json.dumps(json.loads(messages[0].notes["labels"].replace("violin", typed))),
        }
        plan = Plan.merged([replace(messages[0], notes=notes), *messages[1:]], NAMES)
        assert plan.labels == before.labels
        assert same_arrays(plan.sums, before.sums)
    archive = archive_of(resolved(archives[1][0]).config.data)
    names = tuple(f"{name}\ufeff" for name in archive.label_names)
    own = resolved(archives[1][0])
    spelled = before.silo_inputs(replace(archive, label_names=names), own, 0)
    expected = before.silo_inputs(archive, own, 0)
    device = torch.device("cpu")
    assert np.array_equal(spelled.silo(0, device)[0].labels, expected.silo(0, device)[0].labels)
    assert expected.silo(0, device)[0].labels.any()


def test_features_of_another_form_are_refused(archives: tuple[Path, list[Path]]) -> None:
    messages = descriptions(archives[1])
    other = replace(messages[1], notes={**messages[1].notes, "features/image": '{"kind": "given", "width": 3}'})
    with pytest.raises(SilosDiffer, match=r"image.*place-1.*place-0"):
        Plan.merged([messages[0], other, messages[2]], NAMES)


def test_modality_without_training_items_is_refused(archives: tuple[Path, list[Path]]) -> None:
    bare = [
        replace(message, sums={name: array for name, array in message.sums.items() if not name.startswith("text/")})
        for message in descriptions(archives[1])
    ]
    with pytest.raises(ModalityNeeded, match="text"):
        Plan.merged(bare, NAMES)


def test_pooled_methods_are_refused(archives: tuple[Path, list[Path]]) -> None:
    with pytest.raises(NotSupported, match="centralized"):
        check_separable(resolved(archives[0], federated={"name": "centralized"}))
    check_separable(resolved(archives[0]))


def test_silo_that_joins_later_has_no_items_in_the_plan_and_only_its_labels(
    archives: tuple[Path, list[Path]],
) -> None:
    messages = descriptions(archives[1])
    names = json.loads(messages[0].notes["labels"])
    place, known = names.index("violin"), [name for name in names if name != "violin"]
    first = [
        replace(one, notes={**one.notes, "labels": json.dumps(known)}, sums={
            name: np.delete(array, place) if name == "labels/label_counts" else array for name, array in one.sums.items()
        })
        for one in messages[:2]
    ]  # fmt: skip
    plan = Plan.merged(first, NAMES)
    assert plan.sizes == [("place-0", 12, 3), ("place-1", 24, 6), ("place-2", 0, 0)]
    late = resolved(archives[1][2])
    archive = archive_of(late.config.data)
    train, validation = plan.silo_inputs(archive, late, 2).silo(2, torch.device("cpu"))
    assert (train.name, len(train) + len(validation)) == ("place-2", 30)
    assert train.labels.shape[1] == len(known)
    columns = [archive.label_names.index(name) for name in plan.labels]
    assert train.labels.sum() + validation.labels.sum() == archive.labels[archive.split("train")][:, columns].sum()


def test_a_silo_cannot_count_more_features_than_its_items_have(archives: tuple[Path, list[Path]]) -> None:
    honest = descriptions(archives[1])
    for name in ("image/count", "text/texts", "text/document_frequency"):
        claimed = np.full_like(honest[0].sums[name], 10**9)
        liar = replace(honest[0], sums={**honest[0].sums, name: claimed})
        with pytest.raises(
            SilosDiffer, match=rf"place-0 counts 1e\+09 {name.partition('/')[0]} features, more than its"
        ):
            Plan.merged([liar, *honest[1:]], NAMES)


def test_pixels_are_counted_per_picture(tmp_path: Path) -> None:
    _, apart = archives_with_pictures(tmp_path, 18)
    messages = []
    for number, path in enumerate(apart):
        own = resolved(path, features={"image": {"kind": "pixels", "size": 16}})
        messages.append(described(archive_of(own.config.data), own, number, NAMES))
    assert Plan.merged(messages, NAMES).featurizers["image"].shape == (3, 16, 16)
    twice = {**messages[0].sums, "image/count": 2 * messages[0].sums["image/count"]}
    with pytest.raises(SilosDiffer, match="place-0 counts"):
        Plan.merged([replace(messages[0], sums=twice), *messages[1:]], NAMES)


def test_what_a_silo_announced_first_is_remembered(archives: tuple[Path, list[Path]], tmp_path: Path) -> None:
    honest = descriptions(archives[1])
    plan = Plan.merged(honest[:2], NAMES)
    first = announcements(tmp_path, plan, honest[:2], begins=True)
    assert [(one.training, one.validation) for one in first[:2]] == [size[1:] for size in plan.sizes[:2]]
    assert sum(np.asarray(one.labels) for one in first[:2]).tolist() == plan.sums["label_counts"].tolist()
    assert (first[2].training, first[2].validation, first[2].labels) == (0, 0, None)
    lies = [replace(message, counts={"training": 10**9, "validation": 10**9}) for message in honest]
    later = announcements(tmp_path, plan, [lies[0], honest[2]], begins=False)
    assert [one.training for one in later] == [first[0].training, first[1].training, honest[2].counts["training"]]
    assert np.array_equal(np.asarray(later[0].labels), np.asarray(first[0].labels))
    assert [one.training for one in announcements(tmp_path, plan, lies[2:], begins=False)] == [
        one.training for one in later
    ]
    assert [one.training for one in announcements(tmp_path, plan, lies, begins=True)] == [10**9] * 3
    assert not any(ANNOUNCEMENTS in name or "announced" in name for name in plan.encode().arrays())


def test_labels_of_a_silo_that_joins_later_are_those_of_the_plan(
    archives: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    honest = descriptions(archives[1])
    plan = Plan.merged(honest, NAMES)
    fewer = replace(plan, labels=plan.labels[1:])
    whole = [np.asarray(one.labels) for one in announcements(tmp_path / "a", plan, honest, begins=True)]
    part = [np.asarray(one.labels) for one in announcements(tmp_path / "b", fewer, honest, begins=True)]
    assert all(np.array_equal(all_of[1:], some) for all_of, some in zip(whole, part, strict=True))


def test_a_silo_with_private_counts_announces_no_labels(archives: tuple[Path, list[Path]], tmp_path: Path) -> None:
    honest = descriptions(archives[1])
    none = {name: np.zeros_like(array) for name, array in honest[0].sums.items() if name.startswith("labels/")}
    private = replace(honest[0], sums={**honest[0].sums, **none})
    found = announcements(tmp_path, Plan.merged(honest, NAMES), [private], begins=True)[0]
    assert (found.labels, found.training) == (None, honest[0].counts["training"])
