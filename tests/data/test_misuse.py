"""Data as users have it: every form works, or an error names cause and remedy before anything is trained."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset

import fedalpha
from fedalpha import Task, federation

X = torch.arange(240, dtype=torch.float32).view(60, 4) / 240
Y = torch.arange(60) % 3


def trained(data: Any, model: Any = "softmax", **options: Any) -> fedalpha.analysis.history.History:
    return fedalpha.run(data, model, rounds=1, engine="embedded(workers=1)", **options)


class Rows(Dataset):  # type: ignore[type-arg]
    """A map-style data set over a function of the index."""

    def __init__(self, row: Any, size: int = 60) -> None:
        self.row, self.size = row, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int) -> Any:
        if i >= self.size:
            raise IndexError(i)
        return self.row(i)


def embedded() -> nn.Module:
    return nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(4 * 5, 3))


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.int16])
@pytest.mark.parametrize("workers", [1, 2])
def test_whole_numbers_stay_whole_and_reach_an_embedding(kind: torch.dtype, workers: int) -> None:
    x = (torch.arange(300).view(60, 5) % 10).to(kind)
    for data in ((x, Y), TensorDataset(x, Y), Rows(lambda i: (x[i], int(Y[i])))):
        made = federation(data, clients=3)
        assert made.data.x.dtype == torch.int64
        history = fedalpha.run(made, embedded, rounds=1, engine=f"embedded(workers={workers})")
        assert history.accuracy[-1] >= 0


def test_whole_numbers_for_a_model_without_embedding_are_refused_before_training() -> None:
    with pytest.raises(ValueError, match=r"type int64.*embedding.*X\.float\(\)"):
        trained(federation((X.long(), Y), clients=2))


def test_pixels_are_used_for_the_users_pictures_and_refused_elsewhere() -> None:
    pictures = torch.arange(60 * 3 * 4 * 4).view(60, 3, 4, 4).to(torch.uint8)
    assert federation((pictures, Y)).data.x.max() == 1
    assert federation((pictures, Y), pixels="raw").data.x.max() == 255
    standard = federation((pictures, Y), pixels="standard", test=(pictures[:9], Y[:9]))
    assert standard.data.x.mean(dim=(0, 2, 3)) == pytest.approx(torch.zeros(3), abs=1e-5)
    assert torch.equal(
        standard.test.x[0], standard.data.x[(standard.data.x == standard.test.x[0]).flatten(1).all(1)][0]
    )
    with pytest.raises(ValueError, match=r"pixels = 'raw' applies to pictures stored as uint8, and X is torch.float32"):
        federation((X, Y), pixels="raw")
    with pytest.raises(ValueError, match="'foo' is not one of unit, raw, standard"):
        federation((X, Y), pixels="foo")
    with pytest.raises(ValueError, match="holds none, leave pixels out"):
        federation("synthetic(a=1, b=1)", pixels="raw")


def test_a_test_part_replaces_that_of_a_named_data_set() -> None:
    named = federation("digits")
    own = federation("digits", test=(named.test.x[:7], named.test.y[:7]))
    assert len(own.test) == 7
    assert torch.equal(own.data.x, named.data.x)
    with pytest.raises(ValueError, match=r"shape \(1, 8, 8\) and the test data of shape \(4,\)"):
        federation("digits", test=(X, Y))


def test_a_dataset_that_changes_at_random_is_refused_with_the_remedy() -> None:
    rng = np.random.default_rng(0)
    noisy = Rows(lambda i: (X[i] + float(rng.normal()), int(Y[i])))
    with pytest.raises(ValueError, match=r"transformed at random.*transform="):
        federation(noisy)


def test_data_sets_and_subsets_are_clients() -> None:
    whole = TensorDataset(X, Y)
    made = federation([Subset(whole, range(0, 20)), Subset(whole, range(20, 60)), (X[:10], Y[:10])])
    assert [len(made.client(i)) for i in range(3)] == [16, 32, 8]
    assert trained(made).accuracy[-1] >= 0


@pytest.mark.parametrize("lists", [[[0, 5, 7], range(10, 40)], {"a": [0, 5, 7], "b": np.arange(10, 40)}])
def test_index_lists_are_a_partition(lists: Any) -> None:
    made = federation((X, Y), partition=lists, test=(X, Y))
    assert [len(made.client(i)) for i in range(2)] == [3, 30]
    assert torch.equal(made.client(0).x, X[[0, 5, 7]])
    assert made.description["partition"] == "given"
    named = federation("digits", partition=[[3, 1], [2, 0]])
    assert torch.equal(named.client(0).y, named.data.y[:2])


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ([[0, 1], [1, 2]], "sample 1 to two clients"),
        ([[0, 1], [60]], "samples are 0 … 59"),
        ([[0, -1]], "samples are 0 … 59"),
        ([[0], []], "client 1 of the partition has no samples"),
        ([[0.5, 1.5]], "whole-number sample indices"),
    ],
)
def test_wrong_index_lists_are_named(lists: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        federation((X, Y), partition=lists, test=(X, Y))
    with pytest.raises(ValueError, match="leave partition out"):
        federation([(X, Y), (X, Y)], partition=[[0], [1]])
    with pytest.raises(ValueError, match="clients = 5, but the partition lists 2 clients; leave clients out"):
        federation((X, Y), partition=[[0], [1]], clients=5)


def test_rows_with_fields_as_hugging_face_has_them() -> None:
    from PIL import Image

    pictures = np.arange(60 * 48, dtype=np.uint8).reshape(60, 4, 4, 3)
    rows = Rows(lambda i: {"image": Image.fromarray(pictures[i]), "label": int(Y[i])})
    made = federation(rows, clients=2, pixels="raw", test=rows)
    assert made.shape == (3, 4, 4)
    assert torch.equal(made.test.x[5], torch.from_numpy(pictures[5].transpose(2, 0, 1).astype(np.float32)))
    many = Rows(lambda i: {"id": i, "text": X[i], "stars": int(Y[i])})
    with pytest.raises(ValueError, match=r"fields id, text, stars; say which.*fields="):
        federation(many)
    assert federation(many, fields=("text", "stars"), clients=2).shape == (4,)
    assert federation({"x": X, "label": Y}, clients=2).shape == (4,)
    with pytest.raises(ValueError, match=r"row 0 of the data is a int.*data\[i\] is \(x, y\)"):
        federation(Rows(lambda i: i))


def test_words_are_labels_and_mean_the_same_everywhere() -> None:
    words = np.array(["cat", "dog", "ant"])[Y.numpy()]
    made = federation(
        [(X[:30], words[:30]), (X[30:], list(words[30:]))], test=[(X[:3], ["dog"] * 3), (X[:3], ["cat"] * 3)]
    )
    assert made.words == ("ant", "cat", "dog")
    assert made.test.y.tolist() == [2, 2, 2, 1, 1, 1]
    assert made.classes == 3
    with pytest.raises(ValueError, match="words as labels and part 1 numbers"):
        federation([(X, words), (X, Y)])


def test_data_that_cannot_be_written_to_are_read_without_a_warning() -> None:
    """Columns of pandas and mapped files are such."""
    arrays = X.numpy().copy(), np.arange(len(X)) % 2
    for array in arrays:
        array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert federation(arrays, clients=2).clients == 2


def test_tables_of_pandas_are_data() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X.numpy(), columns=list("abcd"))
    made = federation((table, pandas.Series(["no", "yes"] * 30)), clients=2)
    assert (made.shape, made.words) == ((4,), ("no", "yes"))
    with pytest.raises(ValueError, match="cannot read X"):
        federation((table.astype(str), Y))


def test_a_list_of_samples_is_not_a_list_of_clients() -> None:
    with pytest.raises(ValueError, match="client 0 of the list: y is a single number; give one target per sample"):
        federation([(X[0], 1), (X[1], 0)])


def test_a_column_of_labels_is_a_list_of_labels() -> None:
    made = federation((X, Y[:, None]), clients=2)
    assert made.data.y.dim() == 1
    assert trained(made).loss[-1] > 0
    assert federation((X, Y > 0), clients=2).data.y.dtype == torch.int64


def test_labels_with_gaps_are_refused_unless_their_number_is_given() -> None:
    y = torch.tensor([5, 1000] * 30)
    with pytest.raises(ValueError, match=r"go up to 1000, but only 2 of them occur.*renumber.*classes=1001"):
        federation((X, y))
    assert federation((X, y), classes=1001).classes == 1001
    assert federation((X, Y), classes=5).classes == 5
    with pytest.raises(ValueError, match="there is a label 2, but classes = 2"):
        federation((X, Y), classes=2)


@pytest.mark.parametrize("y", [Y.float(), Y.float()[:, None]])
def test_float_targets_with_cross_entropy_are_refused_before_training(y: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r'cross-entropy needs labels.*y\.long\(\).*task="mse"'):
        trained(federation((X, y), clients=2))
    history = trained(federation((X, Y.float()[:, None]), clients=2, task="mse"), lambda: nn.Linear(4, 1))
    assert history.loss[-1] > 0


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        ([(X, Y), (X[:, :3], Y)], r"client 0 has samples of shape \(4,\) and client 1 of shape \(3,\).*one shape"),
        ([(X, Y), (X.long(), Y)], "client 1 torch.int64; convert"),
        ([(X, Y), (X, torch.rand(60, 2))], "targets of shape"),
        ([(X, Y), "X"], "client 1 of the list is not a pair"),
        ([(X, Y), (X, Y[:5])], "one target per sample"),
    ],
)
def test_clients_that_differ_are_named(clients: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        federation(clients)


def test_samples_of_a_data_set_that_differ_in_shape_are_named() -> None:
    with pytest.raises(ValueError, match=r"sample 0 has shape \(4,\) and sample 30 \(3,\); crop or pad"):
        federation(Rows(lambda i: (X[i] if i < 30 else X[i, :3], int(Y[i]))))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda: nn.Linear(7, 3), "cannot take samples of shape \\(4,\\).*reshape X"),
        (lambda: nn.Linear(4, 2), "2 outputs, but there are 3 classes"),
        (lambda: nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (3, 2))), "output has shape"),
        (nn.Linear, "the model cannot be made: .*lambda: nn.Linear"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_training(model: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        trained(federation((X, Y), clients=2), model)


def test_values_may_have_either_shape_and_are_compared_with_their_own_outputs() -> None:
    flat = trained(federation((X, Y.float()), clients=2, task="mse"), lambda: nn.Linear(4, 1))
    column = trained(federation((X, Y.float()[:, None]), clients=2, task="mse"), lambda: nn.Linear(4, 1))
    assert flat.loss.tolist() == column.loss.tolist()
    own = Task(loss=nn.functional.mse_loss, correct=None)
    with pytest.raises(ValueError, match=r"outputs of shape \(2, 1\) with targets of shape \(2,\).*y\[:, None\]"):
        trained(federation((X, Y.float()), clients=2, task=own), lambda: nn.Linear(4, 1))
    with pytest.raises(ValueError, match=r"6 outputs for 2 values.*leave task out"):
        trained(federation((X, Y), clients=2, task="mse"), lambda: nn.Linear(4, 3))
    each = Task(loss=lambda output, target: (output - target) ** 2, correct=None)
    with pytest.raises(ValueError, match=r"the loss returned shape \(2, 1\).*take its mean"):
        trained(federation((X, Y.float()[:, None]), clients=2, task=each), lambda: nn.Linear(4, 1))


def test_a_task_is_made_of_functions() -> None:
    with pytest.raises(TypeError, match=r"loss = 'mse' is not a function.*task='mse'"):
        Task(loss="mse")  # type: ignore[arg-type]


def test_missing_values_are_refused() -> None:
    x = X.float().clone()
    x[3, 1] = float("nan")
    with pytest.raises(ValueError, match="X holds NaN or infinite values, the first in sample 3; fill them in"):
        federation((x, Y), clients=2)
    y = Y.double()
    y[4] = float("nan")
    with pytest.raises(ValueError, match="y holds NaN or infinite values, the first in sample 4; fill them in"):
        federation((X, y), clients=2, task="mse")
    words = np.where(Y > 0, "yes", "no").astype(object)
    words[5] = None
    with pytest.raises(ValueError, match="cannot read y: None in sample 5 is not a number or a word"):
        federation((X, words), clients=2)
    with pytest.raises(ValueError, match="test: y holds NaN"):
        federation((X, Y), clients=2, test=(X, y))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (X, r"cannot read an array of shape \(60, 4\) as data; give a pair \(X, y\)"),
        ({"a": (X, Y), "b": (X, Y)}, r"a mapping of clients; give a list.*list\(data.values\(\)\)"),
        ((X, np.array([0, "yes"] * 30, dtype=object)), "it holds both words and numbers"),
    ],
)
def test_what_is_no_data_is_named(data: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        federation(data, clients=2)


def test_a_test_part_or_a_task_of_the_wrong_kind_is_named() -> None:
    with pytest.raises(ValueError, match=r"test: cannot read 'none' as data"):
        federation((X, Y), clients=2, test="none")
    with pytest.raises(ValueError, match=r"targets are words, and task='mse' needs numbers"):
        federation((X, np.where(Y > 0, "yes", "no")), clients=2, task="mse")
    with pytest.raises(TypeError, match=r"task = MSELoss\(\) is not a task; give fedalpha.Task"):
        federation((X, Y), clients=2, task=nn.MSELoss())  # type: ignore[arg-type]


def test_scores_that_do_not_suit_the_targets_are_refused_before_training() -> None:
    labels = federation((X, Y), clients=2, task=Task(scores="r2"))
    with pytest.raises(ValueError, match="r2 compares values, and here the targets are labels; give balanced_accuracy"):
        fedalpha.run(labels, "softmax", rounds=1)
    squared = Task(loss=nn.functional.mse_loss, correct=None, scores="f1")
    values = federation((X, X[:, 0]), clients=2, task=squared)
    with pytest.raises(ValueError, match="f1 compares labels, and here the targets are values; give mse, r2"):
        fedalpha.run(values, nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), rounds=1)
