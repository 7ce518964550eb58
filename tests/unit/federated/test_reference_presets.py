"""What the presets ``reference`` switch on, against explicit loops and closed forms."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from silohash.exchange.message import Message
from silohash.federated import FEDERATED_METHODS
from silohash.federated.base import FederationInfo, ServerState, SiloContext
from silohash.federated.class_memory import memory_likelihood
from silohash.federated.clustering import shared_clusters
from silohash.federated.methods.fedala import FedALA, FedALAParams, top_layers
from silohash.federated.methods.fedcafe import FedCAFE, FedCAFEParams, class_loss
from silohash.federated.methods.fedcmr import FedCMR, FedCMRParams
from silohash.federated.methods.fedhap import JUDGE, FedHAP, FedHAPParams, hadamard_prototypes, printed_adversarial_loss
from silohash.federated.methods.fedproc import contrast_share, global_contrast
from silohash.federated.methods.fedproto import prototype_distance
from silohash.federated.methods.plfedcmh import PLFedCMH, PLFedCMHParams, authors_scales, class_code_gap
from silohash.federated.prototypes import PrototypeParams, prototype_sums
from silohash.federated.statistics import ReleaseParams, class_statistics, merged_prototypes
from silohash.local.supervised.dcmh import DCMH, DCMHParams
from silohash.models.towers import HashNet
from silohash.runtime.silo import SiloTask, make_context
from tests.runs import loop_config, model_spec, same_arrays, silo_data
from tests.unit.federated.test_formulas import draw, hot

BITS, CLASSES = 8, 6
INFO = FederationInfo(silos=4, classes=CLASSES, bits=BITS, total_rounds=3)


def context_of(server: ServerState, *, class_head: bool = False, kept: dict | None = None) -> SiloContext:
    """A silo's first round under a server's state."""
    model = HashNet(replace(model_spec(), class_head=class_head), BITS)
    broadcast = Message("broadcast", "server", 0, params=server.params, extras=server.extras)
    task = SiloTask("train", 0, broadcast, kept or {})
    return make_context(task, loop_config(), model=model, local=DCMH(DCMHParams()), data=silo_data(20))


class TestFedHAP:
    def test_the_printed_loss_is_that_of_two_loops(self) -> None:
        made, real = draw(5, seed=1), draw(3, seed=2)
        chance = {kind: [1 / (1 + math.exp(-float(value))) for value in values]
                  for kind, values in (("made", made), ("real", real))}  # fmt: skip
        expected = -(sum(1 - math.log(p) for p in chance["made"]) / 5 + sum(math.log(p) for p in chance["real"]) / 3)
        assert float(printed_adversarial_loss(made, real)) == pytest.approx(expected)
        assert float(printed_adversarial_loss(made - 1000, real)) < -900  # it has no lower bound

    @pytest.mark.parametrize("relaxed", [False, True])
    def test_the_printed_loss_helps_the_discriminator_and_passes_no_signs(self, relaxed: bool) -> None:
        method = FedHAP(FedHAPParams(adversary="printed", first_prototypes="hadamard", relaxed=relaxed))
        context = context_of(method.init_server(HashNet(model_spec(), BITS), INFO))
        method.begin_round(context)
        batch = context.data.batch(torch.arange(20))
        outputs = context.model(batch)
        weight, loss = method.regularizer(context, batch, outputs)["adversarial"]
        assert weight == 0.1

        judge, expected = copy.deepcopy(context.auxiliary[JUDGE]).requires_grad_(requires_grad=False), 0.0
        prototypes = torch.from_numpy(context.payload.extras["prototypes"]).float()
        for logit in outputs.logit.values():
            codes = torch.tanh(logit.detach()) if relaxed else torch.where(logit >= 0, 1.0, -1.0)
            made = [float(judge(codes[[i]], batch.labels[[i]])) for i in range(20)]
            real = [float(judge(prototypes[[c]], torch.eye(CLASSES)[[c]])) for c in range(CLASSES)]
            expected -= np.mean([1 + math.log1p(math.exp(-value)) for value in made])
            expected += np.mean([math.log1p(math.exp(-value)) for value in real])
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)

        moves = torch.autograd.grad(loss, list(context.model.parameters()), allow_unused=True)
        assert any(move is not None and bool(move.any()) for move in moves) == relaxed
        step = method.auxiliary_step(context, batch, outputs)["judge"]
        if not relaxed:
            assert step[0] == 1.0
            assert float(step[1].detach()) == pytest.approx(expected / 2, rel=1e-4)

    def test_hadamard_prototypes_are_far_from_each_other(self) -> None:
        rows = hadamard_prototypes(20, 16).astype(int)
        distances = {int((rows[i] != rows[j]).sum()) for i in range(20) for j in range(i)}
        assert distances == {8, 16}
        cut = hadamard_prototypes(21, 24).astype(int)
        assert set(np.unique(cut)) == {-1, 1}
        assert min(int((cut[i] != cut[j]).sum()) for i in range(21) for j in range(i)) == 8
        many = hadamard_prototypes(80, 12)
        assert many.shape == (80, 12)
        assert many.any(axis=1).tolist() == [True] * 32 + [False] * 48

    @pytest.mark.parametrize("first", ["none", "hadamard"])
    def test_a_run_begins_with_the_prototypes_asked_for(self, first: str) -> None:
        method = FedHAP(FedHAPParams(first_prototypes=first))
        extras = method.init_server(HashNet(model_spec(), BITS), INFO).extras
        assert extras["mask"].tolist() == [first == "hadamard"] * CLASSES
        assert extras["prototypes"].any() == (first == "hadamard")
        assert extras["prototypes"].dtype == np.int8


class TestFedCAFE:
    def test_rows_share_a_cluster_with_the_common_rows_that_they_lie_near(self) -> None:
        common = torch.tensor([[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
        rows = torch.tensor([[0.0, 0.1, 1.0], [1.0, 0.0, 0.1], [0.5, 1.0, 0.0]], dtype=torch.float64)
        assert shared_clusters(rows, common, steps=0).tolist() == [[0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]]
        # rows at -40 and 16 degrees pull the clusters of 0 and 30 degrees until both common rows are in the second
        angles = torch.deg2rad(torch.tensor([-40.0, 16.0])).repeat(5)
        turned = torch.stack([angles.cos(), angles.sin()], dim=1)
        common = torch.tensor([[1.0, 0.0], [math.cos(math.pi / 6), 0.5]])
        assert shared_clusters(turned, common, steps=0)[:2].tolist() == [[1, 0], [0, 1]]
        assert shared_clusters(turned, common)[:2].tolist() == [[0, 0], [1, 1]]

    def test_likelihood_of_clusters_is_that_of_a_double_loop(self) -> None:
        memory, common = draw(4, 6, seed=1), draw(5, 6, seed=2)
        mask, same = torch.tensor([True, False, True, True]), hot(3, 5, seed=3)
        expected = [
            math.log1p(math.exp(theta)) - float(same[i, j]) * theta
            for i, row in enumerate(memory[mask]) for j in range(5) for theta in [0.5 * float(row @ common[j])]
        ]  # fmt: skip
        assert float(memory_likelihood(memory, common, mask, same)) == pytest.approx(np.mean(expected))

    def test_weights_follow_the_clusters_of_all_memories(self) -> None:
        rows = torch.nn.functional.normalize(draw(3, 4, seed=1), dim=1)
        masks = [torch.ones(3, dtype=torch.bool)] * 2
        method = FedCAFE(FedCAFEParams(matching="cluster"))
        memories = [rows[[2, 0, 1]], rows]  # the order of rows tells a cluster nothing
        first, second = method._likelihoods(rows, memories, masks)
        assert first == pytest.approx(second)
        by_class = FedCAFE(FedCAFEParams())._likelihoods(rows, memories, masks)
        assert by_class[0] > by_class[1] == pytest.approx(second)

    def test_whole_labels_count_one_each(self) -> None:
        predicted, labels = draw(4, 5), hot(4, 5)
        logs = torch.log_softmax(predicted, dim=1)
        found = class_loss(predicted, labels, shared=False)
        for i in range(4):
            expected = -sum(float(logs[i, c]) for c in range(5) if labels[i, c]) / 5
            assert float(found[i]) == pytest.approx(expected)

    def test_terms_weigh_as_many_times_as_there_are_silos(self) -> None:
        weights = {}
        for times in (False, True):
            method = FedCAFE(FedCAFEParams(times_silos=times))
            server = method.init_server(HashNet(replace(model_spec(), class_head=True), BITS), INFO)
            assert ("silos" in server.extras) == times
            memory = torch.nn.functional.normalize(draw(CLASSES, BITS), dim=1).float().numpy()
            context = context_of(replace(server, extras={**server.extras, "memory": memory}), class_head=True)
            batch = context.data.batch(torch.arange(20))
            terms = method.regularizer(context, batch, context.model(batch))
            weights[times] = {name: weight for name, (weight, _) in terms.items()}
        assert weights[False] == {"enhance": 0.1, "consistency": 0.1, "class": 1.0}
        assert weights[True] == {name: 4 * weight for name, weight in weights[False].items()}


def test_fedcmr_summed_losses_make_silos_of_many_batches_look_bad() -> None:
    kept = {}
    for reduction in ("mean", "sum"):
        method = FedCMR(FedCMRParams(loss_reduction=reduction))
        context = context_of(method.init_server(HashNet(model_spec(), BITS), INFO))
        context.mean_loss, context.steps_taken = 0.5, {"image": 3, "text": 4}
        method._remember(context)
        kept[reduction] = float(context.kept("loss")["value"])
    assert kept == {"mean": 0.5, "sum": pytest.approx(0.5 * 7)}


class TestPLFedCMH:
    def test_in_sequence_a_silo_mixes_the_new_models_of_those_before(self) -> None:
        together, in_turn = (
            PLFedCMH(PLFedCMHParams(hyper_rate=0.1, sequential=sequential)) for sequential in (False, True)
        )
        server = together.init_server(HashNet(model_spec(), BITS), INFO)
        server.private.update({f"trained/{group}": np.ones(4, np.bool_) for group in ("image", "text")})
        updates = [
            Message(
                kind="update", sender=str(silo), round=0, weights={"image": 1.0, "text": 1.0},
                params={n: (a + draw(*a.shape, seed=silo).numpy()).astype(a.dtype) for n, a in server.params.items()},
                records={"silo": np.asarray(silo)},
            )
            for silo in range(4)
        ]  # fmt: skip
        one_by_one = server
        for update in updates:
            one_by_one = together.aggregate(one_by_one, [update])
        found = in_turn.aggregate(server, updates)
        assert same_arrays(found.private, one_by_one.private)
        parallel = together.aggregate(server, updates).private
        assert same_arrays(*({n: a for n, a in p.items() if n.startswith("bank/")} for p in (found.private, parallel)))
        # of the first models, all alike, nothing can be learnt in parallel; in turn there is something to mix
        assert not same_arrays(found.private, parallel)

    def test_the_scale_of_the_code_is_that_of_its_sums(self) -> None:
        values, prototypes, labels, items = draw(5, 3, seed=1), draw(6, 3, seed=2), hot(5, 6), 40
        mask = torch.tensor([True, True, False, True, True, True])
        gaps = [
            (3 * float(labels[i, c]) - float(values[i] @ prototypes[c])) ** 2
            for i in range(5) for c in range(6) if mask[c]
        ]  # fmt: skip
        distances = []
        for i in range(5):
            target = torch.stack([prototypes[c] for c in range(6) if mask[c] and labels[i, c]]).mean(0)
            distances += [float(values[i, k] - target[k]) ** 2 for k in range(3)]
        wide, narrow = authors_scales(3, 5, batch=5, items=items)
        gap = float(class_code_gap(values, labels, prototypes, mask).mean())
        distance = float(prototype_distance(values, labels, prototypes, mask).mean())
        assert wide * gap == pytest.approx(sum(gaps) / (5 * items))
        assert narrow * distance == pytest.approx(sum(distances) / len(distances) / (5 * items))

    def test_its_terms_have_that_scale(self) -> None:
        found = {}
        known = {f"prototypes/{m}": draw(CLASSES, BITS).float().numpy() for m in ("image", "text")}
        known |= {f"mask/{m}": np.arange(CLASSES) != 2 for m in ("image", "text")}
        context = context_of(ServerState(params={}, extras=known))
        batch = context.data.batch(torch.arange(8))
        for normalization in ("mean", "code"):
            method = PLFedCMH(PLFedCMHParams(normalization=normalization))
            terms = method.regularizer(context, batch, context.model(batch))
            found[normalization] = {name: float(value.detach()) for name, (_, value) in terms.items()}
        wide, narrow = authors_scales(BITS, CLASSES - 1, batch=8, items=20)
        assert found["code"]["class_code"] == pytest.approx(wide * found["mean"]["class_code"])
        assert found["code"]["prototype"] == pytest.approx(narrow * found["mean"]["prototype"])


@pytest.mark.parametrize(
    ("name", "preset"), [("fedproto", "authors_code"), ("fedproc", "paper"), ("plfedcmh", "authors_code")]
)
def test_every_class_is_released_and_every_label_counts_whole(name: str, preset: str) -> None:
    labels = torch.zeros(20, CLASSES)
    labels[:, 0], labels[0] = 1, 1
    context = context_of(ServerState(params={}))
    context.data = replace(context.data, labels=labels)
    kind = FEDERATED_METHODS.resolve(name)
    sums = prototype_sums(context, kind.Params(**kind.presets[preset]))
    for modality in ("image", "text"):
        of_all = 20 if name == "fedproc" else 1  # under the others a silo counts once
        assert sums[f"prototype_count/{modality}"].tolist() == [of_all, *[1] * (CLASSES - 1)]
    own = prototype_sums(context, kind.Params(fuse=False))["prototype_count/image"]
    assert own.tolist() == [1 if name == "plfedcmh" else 19.5, *[0] * (CLASSES - 1)]


class TestUniformPrototypes:
    def test_are_the_mean_of_the_silos_means_and_identical_ones_are_kept(self) -> None:
        values, labels = [draw(n, 3, seed=n) for n in (9, 4)], [hot(n, 4, seed=n) for n in (9, 4)]
        labels[1][:, 0] = 0
        release = ReleaseParams(min_count=1)
        silos = [class_statistics(v, lab, release) for v, lab in zip(values, labels, strict=True)]
        sums = sum(silo.with_equal_counts().sums for silo in silos)
        counts = sum(silo.with_equal_counts().counts for silo in silos)
        merged, mask = merged_prototypes(sums.numpy(), counts.numpy(), np.zeros((4, 3), np.float32))
        for c in range(4):
            means = []
            for v, lab in zip(values, labels, strict=True):
                shares = [min(1.0, 3 / float(lab[i].sum())) if lab[i, c] else 0.0 for i in range(len(v))]
                if sum(shares):
                    means.append(sum(s * v[i] for i, s in enumerate(shares)) / sum(shares))
            assert len(means) == (1 if c == 0 else 2)
            np.testing.assert_allclose(merged[c], sum(means).numpy() / len(means), rtol=1e-5)
        assert mask.all()
        same, _ = merged_prototypes(3 * merged, np.full(4, 3.0), np.zeros((4, 3), np.float32))
        np.testing.assert_allclose(same, merged, rtol=1e-6)

    @pytest.mark.parametrize("weighting", ["examples", "uniform"])
    def test_a_silo_sends_means_instead_of_sums(self, weighting: str) -> None:
        context = context_of(ServerState(params={}))
        sums = prototype_sums(context, PrototypeParams(min_count=1, prototype_weighting=weighting))
        counts = sums["prototype_count/fused"]
        assert counts.max() == (1 if weighting == "uniform" else pytest.approx(counts.max()))
        assert (counts.max() > 2) == (weighting == "examples")
        plain = prototype_sums(context, PrototypeParams(min_count=1))
        means = plain["prototype_sum/fused"] / plain["prototype_count/fused"][:, None]
        np.testing.assert_allclose(sums["prototype_sum/fused"], counts[:, None] * means, rtol=1e-5)


class TestFedProc:
    @pytest.mark.parametrize("over", [0.1, 0.5, 1.0])
    def test_losses_that_both_change_are_in_the_papers_ratio(self, over: float) -> None:
        local, contrast = 0.7, 2.5
        paper = over * local + (1 - over) * contrast
        assert over * (local + contrast_share(over, "both") * contrast) == pytest.approx(paper)
        assert contrast_share(over, "contrast") == pytest.approx(1 - over)

    def test_the_first_round_has_the_local_loss_alone(self) -> None:
        assert contrast_share(0.0, "both") == 0.0
        assert contrast_share(0.0, "contrast") == 1.0

    def test_contrast_of_outputs_as_they_are(self) -> None:
        values, prototypes, labels = draw(4, 3, seed=1), draw(5, 3, seed=2), hot(4, 5)
        mask = torch.tensor([True, True, False, True, True])
        found = global_contrast(values, labels, prototypes, mask, 1.0, unit=False)
        for i in range(4):
            scores = {c: float(values[i] @ prototypes[c] / prototypes[c].norm()) for c in range(5) if mask[c]}
            total = sum(math.exp(score) for score in scores.values())
            own = [-math.log(math.exp(scores[c]) / total) for c in scores if labels[i, c]]
            assert float(found[i]) == pytest.approx(sum(own) / len(own))


class TestFedALA:
    NAMES = ("image.backbone.0.weight", "image.backbone.0.bias", "image.backbone.3.weight", "image.hash.weight",
             "image.hash.bias", "image.classifier.weight", "text.backbone.0.weight", "text.hash.weight")  # fmt: skip

    def test_top_layers_end_in_the_hash_layer(self) -> None:
        hashes = {"image.hash.weight", "image.hash.bias", "text.hash.weight"}
        assert set(top_layers(self.NAMES, 1)) == hashes
        assert set(top_layers(self.NAMES, 2)) == hashes | {"image.classifier.weight", "text.backbone.0.weight"}
        assert set(top_layers(self.NAMES, 0)) == set(self.NAMES)

    @pytest.mark.parametrize("layers", [0, 1])
    def test_mixes_the_layers_asked_for(self, layers: int) -> None:
        method = FedALA(FedALAParams(layers=layers, mixing_rate=100.0))
        server = method.init_server(HashNet(model_spec(), BITS), INFO)
        own = {f"model/{n}": (a + 0.1).astype(a.dtype) for n, a in server.params.items()}
        context = context_of(server, kept=own)
        method.begin_round(context)
        mix, state = context.kept("mix"), context.model.state_dict()
        assert set(mix) == ({n for n in server.params if ".hash." in n} if layers else set(server.params))
        assert any((share < 1).any() for share in mix.values())
        for name, array in server.params.items():
            share = mix.get(name, 1.0)
            np.testing.assert_allclose(state[name].numpy(), array + 0.1 * (1 - share), atol=1e-6)
