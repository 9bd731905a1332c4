"""TensorBoard, MLflow and Weights & Biases: what their own readers find in what was written."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import fedalpha
from fedalpha.runs.loggers import LOGGERS, tracking

ROUNDS = 2


@pytest.fixture(scope="module")
def digits() -> fedalpha.data.Federation:
    return fedalpha.federation("digits", clients=4)


def run(digits, logger: str, **more: Any) -> fedalpha.History:
    given = {"strategy": "FedSoftWorse(T=0.2)", "rounds": ROUNDS, "engine": "embedded(workers=1)"}
    return fedalpha.run(digits, "softmax", callbacks=[logger], **{**given, **more})


def test_tensorboard_reads_every_round_once(digits, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger, out = f"tensorboard('{tmp_path}/tb')", tmp_path / "run"
    run(digits, logger, rounds=1, out=out)
    history = run(digits, logger, out=out)  # lengthened: the rows are written again
    found = EventAccumulator(str(tmp_path / "tb"), size_guidance={"histograms": 0, "scalars": 0})
    found.Reload()
    accuracy = found.Scalars("accuracy")
    assert [event.step for event in accuracy] == [0, 1, 2]
    assert [event.value for event in accuracy] == pytest.approx(history.accuracy.tolist())
    weights = found.Histograms("clients/alpha")
    assert [event.step for event in weights] == [1, 2]
    assert weights[-1].histogram_value.num == 4
    assert weights[-1].histogram_value.sum == pytest.approx(1)
    assert found.Images("curves")[0].encoded_image_string[:4] == b"\x89PNG"
    config = found.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert '"strategy": "FedSoftWorse(T=0.2)"' in config


def test_mlflow_reads_parameters_metrics_and_artefacts(digits, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    history = run(digits, f"mlflow('{uri}', experiment=test)")
    client = MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("test").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["strategy"] == "FedSoftWorse(T=0.2)"
    assert found.data.params["rounds"] == str(ROUNDS)
    losses = client.get_metric_history(found.info.run_id, "loss")
    assert [(metric.step, metric.value) for metric in losses] == list(enumerate(history.loss))
    assert found.data.metrics["clients/alpha/max"] == max(history[-1]["alpha"])
    names = {item.path for item in client.list_artifacts(found.info.run_id)}
    assert {"config.json", "curves.png", "alpha.png", "history.jsonl", "model.safetensors"} <= names
    place = Path(client.download_artifacts(found.info.run_id, "model.safetensors"))
    assert all(value.equal(history.model[name]) for name, value in load_file(place).items())


def test_wandb_writes_offline_files(digits, tmp_path: Path, monkeypatch) -> None:
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb-own"))
    history = run(digits, f"wandb(folder='{tmp_path}')")
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    records = list(_records(file))
    config = {update.key: json.loads(update.value_json) for r in records for update in r.run.config.update}
    assert config["strategy"] == "FedSoftWorse(T=0.2)"
    rows = [
        {(item.key or ".".join(item.nested_key)): json.loads(item.value_json) for item in r.history.item}
        for r in records
        if r.WhichOneof("record_type") == "history"
    ]
    accuracy = {row["_step"]: row["accuracy"] for row in rows if "accuracy" in row}
    assert accuracy == dict(enumerate(history.accuracy))
    last = next(row for row in rows if row["_step"] == ROUNDS)
    assert sum(last["clients/alpha.values"]) == 4
    assert any(name.startswith("curves") for row in rows for name in row)
    kept = [r for r in records if _is_artefact(r)]
    (artefact,) = (r.request.log_artifact.artifact if r.HasField("request") else r.artifact for r in kept)
    assert {entry.path for entry in artefact.manifest.contents} >= {"history.jsonl", "model.safetensors"}


def _is_artefact(record: Any) -> bool:
    """Whether a record is that of an artefact."""
    kind = record.WhichOneof("record_type")
    return kind == "artifact" or (kind == "request" and record.request.WhichOneof("request_type") == "log_artifact")


def _records(file: Path) -> Any:
    """The records of a W&B file: a header of 7 bytes, then LevelDB's log format."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, block = file.read_bytes(), 2**15
    place, whole = 7, b""
    while place + 7 <= len(content):
        if block - place % block < 7:  # the rest of a block is padding
            place += block - place % block
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a full record, or the last part of one
            yield Record.FromString(whole)
            whole = b""


def test_mistakes_are_reported_before_training(monkeypatch) -> None:
    with pytest.raises(ValueError, match="mode = 'onlin' is not one of offline, online"):
        LOGGERS.parse("wandb(mode=onlin)")

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(tracking, "import_module", missing)
    for name in ("tensorboard", "mlflow", "wandb"):
        with pytest.raises(ValueError, match=rf'pip install "fedalpha\[{name}\]"'):
            LOGGERS.parse(name)
