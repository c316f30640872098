"""conversion.py convert FOLDER | read FOLDER: writes checkpoints of slices and strategy files into FOLDER, converts them with the package
`mindspore` on the path, and notes its answers in facts.json; or reads what a package has written there, and checks every value."""
import itertools
import json
import re
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore.parallel import (build_searched_strategy, merge_pipeline_strategys, merge_sliced_parameter, rank_list_for_transform,
                                restore_group_info_list, transform_checkpoint_by_rank, transform_checkpoints)

# Global shapes; `learning_rate` and `global_step` are in no strategy file.
TENSORS = {"fc.weight": (16, 24), "moments.fc.weight": (16, 24), "fc.bias": (24,), "half": (8, 8), "count": (16,)}
DTYPES = {"half": np.float16, "count": np.int32}


def value(name):
    """The whole tensor."""
    shape = TENSORS[name]
    return (np.arange(np.prod(shape)).reshape(shape) * 3 + len(name)).astype(DTYPES.get(name, np.float32))


class Split:
    """How the ranks of a stage hold the tensors: `grid` of ranks; for each tensor the axis (0 the last) of each dim, -1: none, and into
    how many optimizer shards, that lie `step` ranks apart, its slices are cut."""

    def __init__(self, grid, maps, shards=None):
        self.grid, self.maps, self.shards = grid, maps, shards or {}
        self.ranks = int(np.prod(grid))

    def slice(self, name, rank):
        """What the rank holds."""
        array = value(name)
        for dim, axis in enumerate(self.maps[name]):
            if axis >= 0:
                parts = self.grid[-1 - axis]
                array = np.split(array, parts, dim)[rank // int(np.prod(self.grid[len(self.grid) - axis:], dtype=int)) % parts]
        step, size = self.shards.get(name, (0, 0))
        return np.split(array, size)[rank // step % size] if size else array


def maps(weight, bias, half, count):
    """The axes of each tensor."""
    return {"fc.weight": weight, "moments.fc.weight": weight, "fc.bias": bias, "half": half, "count": count}


WHOLE = maps([-1, -1], [-1], [-1, -1], [-1])
SPLITS = {
    "one": Split([1], WHOLE),
    "two rows": Split([2], maps([0, -1], [-1], [0, -1], [0])),
    "two columns": Split([2], maps([-1, 0], [0], [-1, 0], [-1])),
    "four columns": Split([4], maps([-1, 0], [0], [-1, 0], [0])),
    "two by two": Split([2, 2], maps([1, 0], [0], [0, 1], [1])),
    "four, two of each": Split([2, 2], maps([0, -1], [-1], [-1, 0], [1])),
    "eight columns": Split([8], maps([-1, 0], [0], [-1, 0], [0])),
    "eight, four columns, shards": Split([2, 4], maps([-1, 0], [0], [-1, 0], [0]), {"fc.weight": (4, 2), "moments.fc.weight": (4, 2)}),
    "eight, two rows, shards": Split([4, 2], maps([0, -1], [-1], [0, -1], [-1]), {"fc.weight": (2, 4), "moments.fc.weight": (2, 4), "half": (2, 2)}),
    "three columns": Split([3], maps([-1, 0], [0], [-1, -1], [-1])),
    "eight, all of it": Split([2, 2, 2], maps([2, 0], [1], [0, 2], [-1])),
}


# A pipeline of two stages, four ranks each.
STAGES = [(Split([4], maps([-1, 0], [0], [-1, 0], [0])), ["fc.weight", "moments.fc.weight"]),
          (Split([2, 2], maps([1, 0], [0], [0, 1], [1])), ["fc.bias", "half"])]


def field(number, content):
    """A field of Protocol Buffers: a number, or bytes with their length."""
    def varint(n):
        n &= 2**64 - 1
        out = b""
        while n > 127:
            out += bytes([n & 127 | 128])
            n >>= 7
        return out + bytes([n])
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def dims(numbers):
    return b"".join(field(1, n) for n in numbers)


def protobuf(split, names, stage):
    """The strategy file of a stage."""
    operators = b"".join(field(2, field(1, f"MatMul_{name}") + field(2, field(1, stage) + field(2, dims([1, split.ranks])))) for name in names)
    layouts = b""
    for name in sorted(names):
        step, size = split.shards.get(name, (0, 0))
        layout = field(1, dims(split.grid)) + field(2, dims(split.maps[name])) + field(3, b"") + field(4, b"") + field(5, 0) + field(6, step) + field(7, size)
        layouts += field(3, field(1, name) + field(2, layout))
    return field(1, 1) + operators + layouts


def json_form(split, names, stage):
    """The same as JSON."""
    layouts = {}
    for name in sorted(names):
        step, size = split.shards.get(name, (0, 0))
        layouts[name] = {"dev_matrix": split.grid, "field": 0, "opt_weight_shard_size": size, "opt_weight_shard_step": step,
                         "tensor_map": split.maps[name], "tensor_shape": list(TENSORS[name])}
    operators = {f"MatMul_{name}": {"parallel_strategy": [[1, split.ranks]], "stage": stage} for name in names}
    return json.dumps({"current_stage": 1, "parallel_layout_item": layouts, "parallel_strategy_item": operators}).encode()


def write_rank(path, split, rank, names):
    """A rank's checkpoint."""
    path.parent.mkdir(parents=True, exist_ok=True)
    items = [{"name": name, "data": ms.Tensor(split.slice(name, rank))} for name in names]
    items.append({"name": "learning_rate", "data": ms.Tensor(np.float32(0.125))})
    items.append({"name": "global_step", "data": ms.Tensor(np.array([73], np.int32))})
    ms.save_checkpoint(items, str(path))


def attempt(call):
    """Its result, or the name of the error."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001: whatever a package raises is its answer
        return f"{type(error).__name__}"


def convert(folder, source, src_strategy, dst_strategy, dst_ranks, facts, case):
    """By directory and rank by rank."""
    facts[f"{case}: transform"] = attempt(lambda: transform_checkpoints(str(source), str(folder / "dst" / case), "transformed", src_strategy, dst_strategy))
    for rank in range(dst_ranks):
        needed = attempt(lambda rank=rank: rank_list_for_transform(rank, src_strategy, dst_strategy))
        facts[f"{case}: ranks for {rank}"] = sorted(map(int, needed)) if isinstance(needed, list) else needed
        if not isinstance(needed, list):
            continue
        path = folder / "by_rank" / case / f"{rank}.ckpt"
        path.parent.mkdir(parents=True, exist_ok=True)
        files = {r: str(source / f"rank_{r}" / "net-1_2.ckpt") for r in needed}
        facts[f"{case}: by rank {rank}"] = attempt(lambda: transform_checkpoint_by_rank(rank, files, str(path), src_strategy, dst_strategy))


def described(layouts):
    """Of build_searched_strategy, as plain lists."""
    return {name: [list(layout.dev_matrix[0].dim), list(layout.tensor_map[0].dim), list(layout.param_split_shape[0].dim), layout.field,
                   layout.opt_weight_shard_step, layout.opt_weight_shard_size] for name, layout in layouts.items()}


def read(folder):
    """Whether every converted checkpoint holds its rank's slices, and the merged strategy files say what was merged."""
    wrong = count = 0
    for path in sorted([*folder.glob("dst/*/*/*.ckpt"), *folder.glob("by_rank/*/*.ckpt")]):
        case = path.relative_to(folder).parts[1]
        rank = int(re.search(r"(\d+)\.ckpt$", path.name)[1])
        split = SPLITS.get(case.partition(" to ")[2], SPLITS["one"])
        for name, found in ms.load_checkpoint(str(path)).items():
            if name in TENSORS:
                count += 1
                good = found.asnumpy().dtype == value(name).dtype and np.array_equal(found.asnumpy(), split.slice(name, rank))
                wrong += not good
                if not good:
                    print(f"FAILED: {path.relative_to(folder)}: {name} is not the slice of rank {rank}")
    expected = {f"{stage}-{name}": described_split(split, name) for stage, (split, names) in enumerate(STAGES) for name in names}
    for form in ("ckpt", "json"):
        found = described(build_searched_strategy(str(folder / f"merged.{form}")))
        wrong += found != expected
        if found != expected:
            print(f"FAILED: merged.{form}: {found}, merged were {expected}")
    print(f"{count} slices read, {wrong} wrong")
    return wrong == 0 and count > 0


def described_split(split, name):
    """The same of a Split."""
    return [split.grid, split.maps[name], [], 0, *split.shards.get(name, (0, 0))]


def main():
    command, folder = sys.argv[1], Path(sys.argv[2])
    if command == "read":
        return 0 if read(folder) else 1
    facts = {}
    strategies = folder / "strategies"
    strategies.mkdir(parents=True)
    for name, split in SPLITS.items():
        (strategies / f"{name}.ckpt").write_bytes(protobuf(split, list(TENSORS), 0))
        (strategies / f"{name}.json").write_bytes(json_form(split, list(TENSORS), 0))
        for form in ("ckpt", "json"):
            facts[f"strategy {name} {form}"] = described(build_searched_strategy(str(strategies / f"{name}.{form}")))
        for rank in range(split.ranks):
            write_rank(folder / "src" / name / f"rank_{rank}" / "net-1_2.ckpt", split, rank, list(TENSORS))

    # Between all splits whose numbers of ranks are multiples; the strategy file as JSON for every second pair.
    for i, (src, dst) in enumerate(itertools.product(SPLITS, SPLITS)):
        form = "json" if i % 2 else "ckpt"
        convert(folder, folder / "src" / src, str(strategies / f"{src}.{form}"), str(strategies / f"{dst}.{form}"), SPLITS[dst].ranks, facts, f"{src} to {dst}")
    for src in SPLITS:
        convert(folder, folder / "src" / src, str(strategies / f"{src}.ckpt"), None, 1, facts, f"{src} to nothing said")

    for form, write in (("ckpt", protobuf), ("json", json_form)):
        (folder / f"stages_{form}").mkdir()
        for stage, (split, names) in enumerate(STAGES):
            (folder / f"stages_{form}" / f"strategy{stage}.{form}").write_bytes(write(split, names, stage))
        facts[f"merge {form}"] = attempt(lambda form=form: merge_pipeline_strategys(str(folder / f"stages_{form}"), str(folder / f"merged.{form}")))
        facts[f"merged {form}"] = described(build_searched_strategy(str(folder / f"merged.{form}")))
    for stage, (split, names) in enumerate(STAGES):
        for rank in range(split.ranks):
            write_rank(folder / "src" / "pipeline" / f"rank_{stage * split.ranks + rank}" / "net-1_2.ckpt", split, rank, names)
    for dst in ("one", "two rows", "four columns", "two by two", "eight columns"):
        strategy = strategies / f"pipeline to {dst}.ckpt"
        strategy.write_bytes(protobuf(SPLITS[dst], [name for _, names in STAGES for name in names], 0))
        convert(folder, folder / "src" / "pipeline", str(folder / "merged.ckpt"), str(strategy), SPLITS[dst].ranks, facts, f"pipeline to {dst}")

    # Slices in memory.
    merged = []
    for name, split in SPLITS.items():
        layouts = build_searched_strategy(str(strategies / f"{name}.ckpt"))
        for tensor in TENSORS:
            if tensor in split.shards:
                continue  # the reference merges by the grid alone
            slices = [ms.Parameter(ms.Tensor(split.slice(tensor, rank)), tensor) for rank in range(split.ranks)]
            whole = merge_sliced_parameter(slices, layouts)
            merged.append({"name": f"{name} {tensor}", "data": whole})
            facts[f"merged {name} {tensor}"] = bool((whole.asnumpy() == value(tensor)).all())
    ms.save_checkpoint(merged, str(folder / "merged_slices.ckpt"))

    group = folder / "group.pb"
    group.write_bytes(field(1, field(1, "8-123") + field(2, dims(range(8)))) + field(2, dims([0, 4])))
    facts["restore"] = restore_group_info_list(str(group))
    (folder / "facts.json").write_text(json.dumps(facts, indent=1, sort_keys=True))
    print(f"{len(facts)} answers, {sum(1 for _ in folder.rglob('*.ckpt'))} checkpoints and strategy files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
