"""Wide & Deep (Cheng et al., 2016) on a made-up log of clicks: how likely is a user to click on an item at some hour? Its tables may
be kept by parameter servers:

    python wide_deep.py                                     one process
    tessera run -n 3 --servers 2 python wide_deep.py        three processes train, two keep the tables

The losses are the same. How good a prediction can be is known, because the log is drawn from probabilities: no ranking of the
held-out rows has a larger AUC, but for chance, than the one by these.
"""
import argparse
import sys
from typing import Any

import numpy as np
import tessera
from numpy.typing import NDArray
from tessera import nn, ops

USERS, ITEMS, HOURS = 30, 20, 24
FIELDS, ROWS = 3, USERS + ITEMS + HOURS  # a row of the tables for each user, item and hour, in this order
TEST_ROWS = 6000


def draw(rows: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """ids [rows, 3], clicked [rows, 1], and the probabilities of the clicks, which no model knows."""
    truth = np.random.default_rng(1)
    # What users like, items are liked, and hours bring: six kinds of users see four kinds of items in their own ways.
    taste, liked, habit = truth.normal(0, 1.5, (6, 4)), truth.normal(0, 0.7, ITEMS), truth.normal(0, 0.4, HOURS)
    drawn = np.random.default_rng(2)
    # Few users and items have most of the log.
    user, item = (np.floor(size * drawn.random(rows) ** 2).astype(np.int32) for size in (USERS, ITEMS))
    hour = drawn.integers(0, HOURS, rows).astype(np.int32)
    probability = 1 / (1 + np.exp(0.5 - taste[user % 6, item % 4] - liked[item] - habit[hour]))
    clicked = (drawn.random(rows) < probability).astype(np.float32)
    return np.stack([user, USERS + item, USERS + ITEMS + hour], 1), clicked[:, None], probability


def auc(scores: NDArray[Any], clicked: NDArray[Any]) -> float:
    """The share of all pairs of a clicked and another row in which the clicked one has the higher score; equal ones count half."""
    values, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[places]
    clicks = clicked > 0
    return float((ranks[clicks].sum() - clicks.sum() * (clicks.sum() + 1) / 2) / (clicks.sum() * (~clicks).sum()))


class WideDeep(nn.Cell):
    """The wide part adds up a weight for each number; the deep part makes a number of their rows in a second table."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Embedding(ROWS, 1)
        self.deep = nn.Embedding(ROWS, 8, embedding_table=nn.initializers.normal(0.1))
        self.hidden1 = nn.Dense(FIELDS * 8, 32, weight_init="he_uniform", activation="relu")
        self.hidden2 = nn.Dense(32, 16, weight_init="he_uniform", activation="relu")
        self.output = nn.Dense(16, 1, weight_init="xavier_uniform")

    def construct(self, ids: tessera.Tensor) -> tessera.Tensor:
        rows = ops.reshape(self.deep(ids), (ids.shape[0], FIELDS * 8))
        logits: tessera.Tensor = ops.reduce_sum(self.wide(ids), 1) + self.output(self.hidden2(self.hidden1(rows)))
        return logits


class ClickLoss(nn.Cell):
    """The cross entropy of a click, of its logit: log(1 + exp(-|z|)) + max(z, 0) - z * clicked."""

    def construct(self, logits: tessera.Tensor, clicked: tessera.Tensor) -> tessera.Tensor:
        return ops.reduce_mean(ops.log1p(ops.exp(-ops.abs(logits))) + ops.maximum(logits, 0.0) - logits * clicked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=3, help="times through the log")
    parser.add_argument("--rows", type=int, default=24000, help="of the log that is trained on")
    parser.add_argument("--batch_size", type=int, default=240, help="rows of a step")
    parser.add_argument("--max_distance", type=float, default=1.0, help="fail when the AUC stays further below what can be reached")
    options = parser.parse_args()
    ids, clicked, probability = draw(options.rows + TEST_ROWS)
    network = WideDeep()
    if tessera.cluster.num_servers() > 0:
        network.wide.set_on_servers()
        network.deep.set_on_servers()
    # Rows of users and items that a batch has nothing of stay as they are.
    model = tessera.Model(network, ClickLoss(), nn.LazyAdam(0.01), seed=1,
                          parallel_mode="data_parallel" if tessera.cluster.size() > 1 else "stand_alone")
    train = slice(0, options.rows)
    log = tessera.data.tensors({"ids": ids[train], "clicked": clicked[train]}, shuffle=True, seed=1).batch(options.batch_size, drop_remainder=True)
    model.train(options.epochs, log, [tessera.LossMonitor(10)])

    reached = auc(model.predict(ids[options.rows:]).numpy()[:, 0], clicked[options.rows:, 0])
    reachable = auc(probability[options.rows:], clicked[options.rows:, 0])
    if tessera.cluster.rank() == 0:
        print(f"auc {reached:.4f}, of {reachable:.4f} that can be reached", flush=True)
    if reachable - reached > options.max_distance:
        sys.exit(f"auc {reached:.4f} is more than {options.max_distance} below {reachable:.4f}")


if __name__ == "__main__":
    main()
