"""Logistic regression with scikit-learn."""

import warnings

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss
from task import create_model, fit, get_params, load_data, set_params

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    model = create_model(context.run_config["local-epochs"])
    set_params(model, msg.content["arrays"].to_numpy_ndarrays())
    X, _, y, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(model, X, y)
    loss = log_loss(y, model.predict_proba(X), labels=model.classes_)
    metrics = {"num-examples": len(X), "train_logloss": loss, "train_accuracy": model.score(X, y)}
    content = RecordDict({"arrays": ArrayRecord(get_params(model)), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    model = create_model(1)
    set_params(model, msg.content["arrays"].to_numpy_ndarrays())
    _, X, _, y = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss = log_loss(y, model.predict_proba(X), labels=model.classes_)
    metrics = {"num-examples": len(X), "test_logloss": loss, "accuracy": model.score(X, y)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
