"""FedJAX: its own federated averaging, jit backend, images in JAX's layout (height, width, channel)."""

from __future__ import annotations

import contestant
import jax
import jax.numpy as jnp
import numpy as np

jax.tree_map = jax.tree_util.tree_map  # FedJAX uses a name that newer versions of JAX have removed
import fedjax  # noqa: E402
from fedjax.algorithms import fed_avg  # noqa: E402


def forward(params, x):
    if work.model == "cnn":
        for layer in ("conv1", "conv2"):
            kernel, bias = params[f"{layer}.weight"], params[f"{layer}.bias"]
            x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x + bias)
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(len(x), -1) @ params["output.weight"] + params["output.bias"]


def loss(params, batch, rng):
    scores = jax.nn.log_softmax(forward(params, batch["x"]))
    return -jnp.take_along_axis(scores, batch["y"][:, None], axis=1).mean()


def from_torch(initial):
    """Kernels become HWIO, matrices inputs × outputs; what is flattened becomes height, width, channel."""
    params = {name: np.asarray(value) for name, value in initial.items()}
    for name in [n for n in params if n.startswith("conv") and n.endswith("weight")]:
        params[name] = params[name].transpose(2, 3, 1, 0)
    output = params["output.weight"]
    if work.model == "cnn":
        output = output.reshape(10, 64, 5, 5).transpose(0, 2, 3, 1).reshape(10, 1600)
    return {**params, "output.weight": output.T}


def to_torch(params):
    """The inverse of `from_torch`."""
    arrays = {name: np.asarray(value) for name, value in params.items()}
    for name in [n for n in arrays if n.startswith("conv") and n.endswith("weight")]:
        arrays[name] = arrays[name].transpose(3, 2, 0, 1)
    output = arrays["output.weight"].T
    if work.model == "cnn":
        output = output.reshape(10, 5, 5, 64).transpose(0, 3, 1, 2).reshape(10, 1600)
    return {**arrays, "output.weight": output}


options = contestant.arguments()
work = contestant.read(options.work)
contestant.versions("fedjax", "jax", "numpy")
x = np.ascontiguousarray(work.x.transpose(0, 2, 3, 1))
y = work.y.astype(np.int32)
data = fedjax.InMemoryFederatedData(
    {f"{i:06d}": {"x": x[work.part(i)], "y": y[work.part(i)]} for i in range(work.clients)}
)
algorithm = fed_avg.federated_averaging(
    jax.grad(loss),
    fedjax.optimizers.sgd(learning_rate=work.lr),
    fedjax.optimizers.sgd(learning_rate=1.0),
    fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=1, drop_remainder=False),
)
state = algorithm.init(jax.tree_util.tree_map(jnp.asarray, from_torch(work.initial)))
key = jax.random.PRNGKey(work.seed)
clock = contestant.Clock(options.model)
clock.start()
for _ in range(options.rounds):
    key, *keys = jax.random.split(key, work.clients + 1)
    clients = [(id, part, k) for (id, part), k in zip(data.clients(), keys, strict=True)]
    state, _ = algorithm.apply(state, clients)
    jax.block_until_ready(state.params)
    clock.stop()
    clock.keep(to_torch(state.params))
