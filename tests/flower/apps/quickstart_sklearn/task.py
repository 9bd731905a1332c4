"""Logistic regression on digits, two labels per client."""

from functools import cache

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression


@cache
def load_data(partition_id, num_partitions):
    X, y = load_digits(return_X_y=True)
    mine = np.flatnonzero(y % num_partitions == partition_id)
    X, y = X[mine][:120] / 16, y[mine][:120]
    return X[:96], X[96:], y[:96], y[96:]


def create_model(local_epochs):
    model = LogisticRegression(max_iter=local_epochs, warm_start=True, solver="saga", random_state=0)
    model.classes_ = np.arange(10)
    model.coef_, model.intercept_ = np.zeros((10, 64)), np.zeros(10)
    return model


def get_params(model):
    return [model.coef_, model.intercept_]


def set_params(model, params):
    model.coef_, model.intercept_ = params[0], params[1]


def fit(model, X, y):
    """Every label is shown once, so that all clients have the same classes."""
    model.fit(np.vstack([X, np.zeros((10, 64))]), np.concatenate([y, np.arange(10)]))
