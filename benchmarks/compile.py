from harness import BIN, Case, Side

DOC = "seconds and peak memory from a network to one rank's schedule: ResNet-50, a Transformer of 48 layers, GPT-3 in stages"


def cases(threads):
    found = []
    for name, options in (
            ("resnet50, 8 ranks", ["--data", 8]),
            ("resnet50, 8 ranks, optimizer shards", ["--data", 8, "--optimizer_shards"]),
            ("resnet50, 1024 ranks", ["--data", 1024]),
            ("resnet50, 1024 ranks, optimizer shards", ["--data", 1024, "--optimizer_shards"]),
            ("transformer of 48 layers, 2x4 ranks", ["--network", "transformer", "--data", 2, "--model", 4]),
            ("GPT-3 of 96 layers, 8 stages of 8x8 ranks, 64 micro-batches",
             ["--network", "gpt3", "--data", 8, "--model", 8, "--stages", 8, "--micro_batches", 64])):
        for unit, measure in (("s", []), ("MiB", ["--memory"])):
            found.append(Case(name, [Side("ours", "tessera", [BIN / "compile_bench", *options, *measure])], unit=unit))
    return found
