from harness import BIN, TUNED_MALLOC, Case, ROOT, Side

DOC = "a Transformer training step, target tokens: against PyTorch, and against oneDNN's matmuls alone"


def cases(threads):
    found = []
    for precision in ("float32", "bfloat16"):
        options = ["--batch_size", 32, "--tokens", 64, "--threads", threads, "--precision", precision]
        torch = [ROOT / "benchmarks" / "peers" / "torch_transformer.py", *options]
        found.append(Case(f"training step, 6 + 6 layers, batch 32 of 64 tokens, {precision}", [
            Side("ours", "tessera", [BIN / "transformer_bench", *options]),
            Side("peer", "pytorch", torch, needs_torch=True),
            Side("peer", "pytorch, tuned malloc", torch, env=TUNED_MALLOC, needs_torch=True),
            Side("limit", "oneDNN's matmuls alone", [BIN / "onednn_transformer_limit", *options]),
        ], unit="tokens/s"))
    return found
