"""Draws what benchmarks/run plan_quality left in build/plan_quality: predicted against measured time of each plan.

    $(scripts/plot_env.py) benchmarks/plot_plan_quality.py [FILE.png]      default: docs/plan_quality.png
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
NETWORKS = ("mlp", "resnet", "transformer")
MARKS = {"chosen": ("*", 160, "tab:red"), "data parallel": ("s", 40, "tab:orange"), "optimizer shards": ("^", 50, "tab:green")}


def draw(axes, name):
    result = json.loads((ROOT / "build" / "plan_quality" / f"{name}.json").read_text())
    for plan in result["plans"]:
        mark, size, colour = MARKS.get(plan["origin"], ("o", 12, "tab:blue"))
        label = plan["origin"] if plan["origin"] in MARKS else None
        axes.scatter(1e3 * plan["predicted_s"], 1e3 * plan["measured_s"], marker=mark, s=size, c=colour, label=label)
    longest = 1e3 * max(max(plan["predicted_s"], plan["measured_s"]) for plan in result["plans"])
    axes.plot([0, longest], [0, longest], color="grey", linewidth=0.8)
    axes.set(title=f"{name}, tau {result['kendall_tau']:.2f}", xlabel="predicted, ms", xlim=0, ylim=0)


def main():
    figure, all_axes = pyplot.subplots(1, len(NETWORKS), figsize=(11, 3.6))
    for axes, name in zip(all_axes, NETWORKS):
        draw(axes, name)
    all_axes[0].set_ylabel("measured, ms")
    all_axes[0].legend()
    figure.tight_layout()
    figure.savefig(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "plan_quality.png", dpi=80)


if __name__ == "__main__":
    main()
