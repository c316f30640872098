"""The examples run, in both languages."""
import math
import re
import sys

import pytest
import tessera

import job

PYTHON = job.EXAMPLES / "python"


def by_tessera(ranks, *command):
    return [job.BIN / "tessera", "run", "-n", ranks, *command]


@pytest.mark.parametrize("launcher", ["mpirun", "tessera run"])
def test_all_gather_in_python(tmp_path, launcher):
    script = PYTHON / "all_gather.py"
    out, _ = job.run(job.python(4, script) if launcher == "mpirun" else by_tessera(4, *job.python(1, script)), tmp_path)
    assert sorted(re.findall(r"\d\.", out)) == sorted(4 * ["0.", "1.", "2.", "3."])


@pytest.mark.parametrize("launcher", ["mpirun", "tessera run"])
def test_all_gather_in_cpp(tmp_path, launcher):
    program = job.BIN / "all_gather"
    out, _ = job.run([*job.mpirun(4), program] if launcher == "mpirun" else by_tessera(4, program), tmp_path)
    assert out.count("[0, 1, 2, 3]") == 4, out


@pytest.mark.parametrize("language", ["python", "cpp"])
def test_a_split_weight_costs_what_a_whole_one_does(tmp_path, language):
    """By hand or by a strategy, on any number of ranks: the losses are those of one rank."""
    command = job.python(1, PYTHON / "hybrid_parallel.py") if language == "python" else [job.BIN / "hybrid_parallel"]
    expected = None
    for ranks in (1, 2, 4):
        out, _ = job.run(by_tessera(ranks, *command), tmp_path)
        losses = {name: [float(loss) for loss in re.findall(name + r" step \d: loss ([\d.]+)", out)]
                  for name in ("HybridParallelNet", "SemiAutoParallelNet")}
        expected = expected or losses["HybridParallelNet"]
        assert len(expected) == 5 and expected[-1] < expected[0] / 10
        for name in losses:
            assert losses[name] == pytest.approx(expected, rel=1e-5, abs=1e-3), (name, ranks)


@pytest.mark.parametrize("language", ["python", "cpp"])
def test_wide_deep_learns_what_the_log_is_drawn_from_with_and_without_servers(tmp_path, language):
    command = [*(job.python(1, PYTHON / "wide_deep.py") if language == "python" else [job.BIN / "wide_deep"]), "--max_distance", "0.02"]
    expected = None
    for servers in (0, 1, 2):
        launcher = by_tessera(2)
        out, _ = job.run([*launcher, *(["--servers", servers] if servers else []), *command], tmp_path)
        losses = {}
        for epoch, step, loss in job.losses(out):
            losses.setdefault((epoch, step), float(loss))
        expected = expected or losses
        assert len(losses) == 30 and losses == pytest.approx(expected, rel=1e-4), servers
        reached, reachable = map(float, re.search(r"auc ([\d.]+), of ([\d.]+) that can be reached", out).groups())
        assert reachable - 0.02 < reached < reachable + 0.02


def test_a_language_model_in_cpp_learns_and_writes_alike_on_one_rank_and_on_two(tmp_path):
    def said(ranks, *options):
        out, _ = job.run(by_tessera(ranks, job.BIN / "language_model", "--text", job.pages.ROOT / "docs", "--samples", 640, "--written", 30, *options), tmp_path)
        written = out.split("language_model.ckpt writes:\n")
        assert len(written) == 2 and "Every rank" in written[1], out
        return [float(loss) for loss in re.findall(r"epoch \d/2: loss ([\d.]+)", out)], written[1]

    losses, text = said(1, "--epochs", 2)
    assert len(losses) == 2 and losses[1] < losses[0] < math.log(256)
    assert said(1, "--epochs", 0) == ([], text)
    for mode in ("data_parallel", "auto_parallel"):
        assert said(2, "--epochs", 2, "--parallel_mode", mode)[0] == pytest.approx(losses, rel=5e-3), mode


def test_an_operator_of_the_program_in_cpp_trains_however_it_is_split(tmp_path):
    expected = None
    for ranks in (1, 2):
        out, _ = job.run(by_tessera(ranks, job.BIN / "custom_operator"), tmp_path)
        assert [split for split in re.findall(r"(\w+) split:\n", out)] == ["rows", "prototypes", "features"], out
        epochs = [(float(loss), float(accuracy)) for loss, accuracy in re.findall(r"epoch \d/3: loss ([\d.]+), accuracy ([\d.]+)", out)]
        expected = expected or epochs[:3]
        assert len(epochs) == 9 and expected[2][0] < expected[0][0] and expected[2][1] > 0.5
        for split in range(3):
            for own, first in zip(epochs[3 * split:3 * split + 3], expected, strict=True):
                assert own == pytest.approx(first, rel=1e-2), (ranks, out)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_data_set_of_the_program_in_cpp_is_shared_by_ranks_and_goes_on_within_an_epoch(tmp_path, ranks):
    out, _ = job.run(by_tessera(ranks, job.BIN / "custom_data_set"), tmp_path)
    assert sorted(re.findall(r"rank (\d) has read (\d+) samples", out)) == [(str(rank), str(4 * 2048 // ranks)) for rank in range(ranks)], out
    assert re.findall(r"training from (.*)\n", out) == ["epoch=0 batch=0", "epoch=0 batch=0", "epoch=1 batch=15"], out
    whole, resumed = re.search(r"last loss ([\d.]+); with a stop ([\d.]+)\n", out).groups()
    assert whole == resumed and float(whole) < 0.5


@pytest.mark.parametrize("ranks", [1, 2])
def test_fine_tuning_in_cpp_takes_from_safetensors_what_fits(tmp_path, ranks):
    out, _ = job.run(by_tessera(ranks, job.BIN / "fine_tune"), tmp_path)
    loaded, new, left_out = (set(names.split()) for names in re.search(r"loaded (.*); new (.*); left out (.*)\n", out).groups())
    assert loaded == {f"backbone.{layer}.{name}" for layer in ("up", "down") for name in ("weight", "bias")}
    assert (new, left_out) == ({"head.weight", "head.bias"}, {"classifier.weight", "classifier.bias"})
    tuned, fresh = map(float, re.search(r"accuracy ([\d.]+), from nothing ([\d.]+)\n", out).groups())
    assert tuned > fresh, out
    again, _ = job.run(by_tessera(ranks, job.BIN / "fine_tune", "--pretrained", "pretrained.safetensors"), tmp_path)
    assert "epoch 1/8" in out and "epoch 1/8" not in again and f"accuracy {tuned:.3f}, from nothing {fresh:.3f}" in again


@pytest.mark.parametrize("mode, ranks", [("stand_alone", 1), ("data_parallel", 2), ("semi_auto_parallel", 2), ("auto_parallel", 2)])
def test_resnet50_in_python(tmp_path, images, mode, ranks):
    out, _ = job.run(job.python(ranks, PYTHON / "resnet50" / "train.py", "--data_path", images, "--parallel_mode", mode, "--epochs", "2"), tmp_path)
    losses = job.losses(out)
    assert sorted((epoch, step) for epoch, step, _ in losses) == sorted(ranks * [(1, 4 // ranks), (2, 4 // ranks)])
    assert all(0 < float(loss) < 2 * math.log(10) for _, _, loss in losses)
    assert len(re.findall(r"epoch time: [\d.]+ ms, per step time: [\d.]+ ms", out)) == 2 * ranks
    summary = re.findall(r"trained 2 epochs in [\d.]+ s, [\d.]+ images/s; the last loss is ([\d.]+)\n", out)
    assert len(summary) == 1 and float(summary[0]) == pytest.approx(float(losses[-1][2]), abs=1e-3), out


def test_resnet50_searched_in_cpp(tmp_path, images):
    """The plan is said in one line, saved, and taken again: equal losses."""
    command = [job.BIN / "resnet50_cifar10", "--data_path", images, "--epochs", 1, "--batch_size", 64, "--no_progress", "--print_loss", 1,
               "--kernels", "fixed", "--parallel_mode", "auto_parallel"]
    out, err = job.run(by_tessera(2, *command, "--plan_save_file", "plan.json", "--checkpoint_dir", "checkpoints"), tmp_path)
    assert [path.read_text() for path in (tmp_path / "checkpoints").glob("*-plan.json")] == [(tmp_path / "plan.json").read_text()]
    assert len(re.findall("auto_parallel: .*; a step is predicted to take", out + err)) == 1
    again, err = job.run(by_tessera(2, *command, "--plan_load_file", "plan.json"), tmp_path)
    assert (again + err).count("auto_parallel: the plan of plan.json") == 1
    assert job.losses(out) == job.losses(again) != []


@pytest.mark.parametrize("ranks", [1, 2])
def test_resnet50_in_cpp(tmp_path, images, ranks):
    out, _ = job.run(by_tessera(ranks, job.BIN / "resnet50_cifar10", "--data_path", images, "--epochs", 1, "--batch_size", 64, "--no_progress",
                                "--print_loss", 1, "--initial_values", "reference", "--kernels", "fixed"), tmp_path)
    losses = [float(loss) for _, _, loss in job.losses(out)]
    assert losses[0] == pytest.approx(math.log(10), abs=0.05)


def test_an_epoch_leaves_a_line_where_nothing_else_is_printed(tmp_path, images, language):
    """Whatever the number of ranks; without a bar of progress, and without losses of single steps."""
    resnet50 = [job.BIN / "resnet50_cifar10", "--data_path", images, "--batch_size", 64, "--no_progress", "--kernels", "fixed"]
    transformer = [job.BIN / "transformer_wmt14", *texts(language, "train"), *TRANSFORMER, "--steps", 3]
    for ranks in (1, 2):
        for command, what in ((resnet50, "images"), (transformer, "pairs")):
            out, _ = job.run(by_tessera(ranks, *command, "--epochs", 2), tmp_path)
            lines = re.findall(rf"epoch (\d)/2: loss ([\d.]+), [\d.]+ {what}/s, [\d.]+ s\n", out)
            assert [epoch for epoch, _ in lines] == ["1", "2"] and float(lines[0][1]) > 0, out
            assert not job.losses(out)


@pytest.mark.parametrize("first_ranks, second_ranks", [(1, 1), (2, 2), (1, 2)])
def test_resnet50_in_cpp_goes_on_from_its_newest_checkpoint(tmp_path, images, first_ranks, second_ranks):
    def said(ranks, epochs, folder, *options):
        out, _ = job.run(by_tessera(ranks, job.BIN / "resnet50_cifar10", "--data_path", images, "--batch_size", 64, "--no_progress", "--kernels", "fixed",
                                    "--print_loss", 1, "--epochs", epochs, "--checkpoint_dir", folder, *options), tmp_path)
        return [(epoch, step, float(loss)) for epoch, step, loss in job.losses(out)][::ranks], out

    whole, _ = said(1, 2, "whole")
    first, _ = said(first_ranks, 1, "parts")
    second, out = said(second_ranks, 2, "parts", "--resume", "newest")
    assert re.search(r"going on from parts/resnet50-1_2\.ckpt: epoch 1, step 2\n", out), out
    assert [loss[:2] for loss in first + second] == [loss[:2] for loss in whole] and len(whole) == 4
    assert [loss[2] for loss in first + second] == pytest.approx([loss[2] for loss in whole], rel=2e-3)


def test_resnet50_in_cpp_is_split_as_a_strategy_file_says(tmp_path, images):
    """The losses are those of one rank; what one training wrote about its strategies another one takes."""
    def losses(ranks, *options):
        command = [job.BIN / "resnet50_cifar10", "--data_path", images, "--epochs", 1, "--batch_size", 64, "--no_progress", "--no_augment", "--print_loss",
                   1, "--print_time", "--initial_values", "reference", "--kernels", "fixed", *options]
        out, _ = job.run(by_tessera(ranks, *command), tmp_path)
        assert len(re.findall(r"epoch time: [\d.]+ ms, per step time: [\d.]+ ms", out)) == ranks
        return [float(loss) for _, _, loss in job.losses(out)][::ranks]

    alone = losses(1)
    assert len(alone) == 2
    assert losses(2, "--parallel_mode", "semi_auto_parallel", "--strategy_ckpt_save_file", "strategy.ckpt") == pytest.approx(alone, rel=1e-3)
    assert (tmp_path / "strategy.ckpt").stat().st_size > 0
    assert losses(2, "--parallel_mode", "semi_auto_parallel", "--strategy_ckpt_load_file", "strategy.ckpt") == pytest.approx(alone, rel=1e-3)


TRANSFORMER = ["--hidden_size", 64, "--ffn_hidden_size", 128, "--batch_size", 32, "--learning_rate", 4e-3, "--warmup_steps", 200]


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    """A made-up language of 4000 pairs to train on, and 200 to be scored with."""
    folder = tmp_path_factory.mktemp("language")
    job.run([job.BIN / "transformer_wmt14", "--make_data", folder], folder)
    return folder


def texts(folder, *names):
    return [word for name in names for side in ("source", "target")
            for word in (f"--{'test_' if name == 'test' else ''}{side}", folder / f"{name}.{side}.sgm")]


@pytest.mark.parametrize("mode, ranks, options", [("stand_alone", 1, []), ("data_parallel", 3, []), ("auto_parallel", 2, []),
                                                  ("semi_auto_parallel", 4, ["--model_parallel", 2, "--parallel_optimizer"])])
def test_transformer_in_cpp_has_one_ranks_losses_and_translations(tmp_path, language, mode, ranks, options):
    def said(ranks, name, *options):
        out, _ = job.run(by_tessera(ranks, job.BIN / "transformer_wmt14", *texts(language, "train", "test"), *TRANSFORMER, "--epochs", 1, "--steps", 8,
                                    "--print_loss", 1, "--beam_size", 2, "--translations", name, *options), tmp_path)
        return [float(loss) for _, _, loss in job.losses(out)], (tmp_path / name).read_text()

    losses, translations = said(1, "alone.txt")
    assert len(losses) == 8 and 0 < losses[-1] < losses[0] and translations.count("\n") == 200
    spread, spread_translations = said(ranks, "spread.txt", "--parallel_mode", mode, *options)
    assert spread == pytest.approx(losses, rel=1e-4) and spread_translations == translations


@pytest.mark.parametrize("stage_ranks, model_parallel", [("2,1", 2), ("1,3", 3)])
def test_stages_of_a_transformer_share_layers_among_their_own_ranks(tmp_path, language, stage_ranks, model_parallel):
    """The losses of one stage are those of a pipeline of two ranks: micro-batches divide by their own words in both."""
    ranks = sum(map(int, stage_ranks.split(",")))
    sizes = ["--hidden_size", 48, "--ffn_hidden_size", 96, "--num_heads", 6, *TRANSFORMER[4:]]

    def losses(ranks, *options):
        command = [job.BIN / "transformer_wmt14", *texts(language, "train"), *sizes, "--epochs", 1, "--steps", 8, "--print_loss", 1, "--num_threads", 1,
                   "--parallel_mode", "pipeline_parallel", "--stages", 2, "--micro_batches", 2, "--schedule", "1f1b", *options]
        return [float(loss) for _, _, loss in job.losses(job.run(by_tessera(ranks, *command), tmp_path)[0])]

    alone = losses(2)
    assert len(alone) == 8 and 0 < alone[-1] < alone[0]
    assert losses(ranks, "--stage_ranks", stage_ranks, "--model_parallel", model_parallel) == pytest.approx(alone, rel=1e-4)


def test_a_transformer_goes_on_from_its_checkpoint_and_evaluates_it(tmp_path, language):
    # A fixed rate: the table of rates is as long as the training, and other with other epochs.
    fixed = TRANSFORMER[:TRANSFORMER.index("--warmup_steps")]
    command = [job.BIN / "transformer_wmt14", *texts(language, "train"), *fixed, "--steps", 4, "--print_loss", 1, "--vocabulary", "words"]
    whole = job.losses(job.run([*command, "--epochs", 2], tmp_path)[0])
    first = job.losses(job.run([*command, "--epochs", 1, "--checkpoint_dir", "ckpt"], tmp_path)[0])
    second = job.losses(job.run([*command, "--epochs", 2, "--resume", "ckpt"], tmp_path)[0])
    assert first + second == whole and len(whole) == 8
    out, _ = job.run([*command, "--evaluate", "ckpt", "--predictions", "predictions.txt", *texts(language, "test")], tmp_path)
    assert "test sentences: BLEU " in out and len((tmp_path / "predictions.txt").read_text().splitlines()) == 32
    assert (tmp_path / "words" / "source.txt").read_text().startswith("UNK\nPAD\nEOT\nBOT\n")


@pytest.mark.parametrize("ranks, options", [(1, []), (4, ["--parallel_mode", "data_parallel"]),
                                            (4, ["--parallel_mode", "pipeline_parallel", "--stages", 2, "--micro_batches", 2, "--schedule", "1f1b"])])
def test_a_transformer_learns_the_made_up_language(tmp_path, language, ranks, options):
    command = [job.BIN / "transformer_wmt14", *texts(language, "train", "test"), *TRANSFORMER, "--epochs", 15, "--num_threads", 1, "--min_bleu", 90]
    out, _ = job.run(by_tessera(ranks, *command, *options), tmp_path, timeout=1800)
    assert float(re.search(r"BLEU ([\d.]+)", out)[1]) >= 90


def test_a_transformer_whose_options_do_not_fit_its_stages_is_refused(tmp_path, language):
    def refusal(ranks, *options):
        command = by_tessera(ranks, job.BIN / "transformer_wmt14", *texts(language, "train"), *TRANSFORMER, *options)
        return job.refused(command, tmp_path)

    pipeline = ["--parallel_mode", "pipeline_parallel"]
    assert "--stages, with --parallel_mode pipeline_parallel, is required" in refusal(2, *pipeline)
    assert "4 ranks cannot be dealt to 3 stages of equally many" in refusal(4, *pipeline, "--encoder_layers", 2, "--stages", 3)
    assert "--stages must be at most the 2 layers, is 4" in refusal(4, *pipeline, "--stages", 4)
    assert "--model_parallel must divide the ranks of one stage at least, which have 3 + 1, is 2" in refusal(
        4, *pipeline, "--stages", 2, "--stage_ranks", "3,1", "--model_parallel", 2)
    assert "--model_parallel must divide the 2 ranks of a stage, is 4" in refusal(4, *pipeline, "--stages", 2, "--model_parallel", 4)


@pytest.mark.parametrize("ranks, options", [(2, []), (2, ["--stages", 2, "--micro_batches", 4]),
                                            (3, ["--stages", 2, "--stage_ranks", "2,1", "--model_parallel", 2])])
def test_transformer_in_python(tmp_path, ranks, options):
    out, _ = job.run(by_tessera(ranks, *job.python(1, PYTHON / "transformer_wmt14" / "train.py", "--epochs", 1, "--train_pairs", 300, "--test_pairs", 5,
                                               *options)), tmp_path)
    assert re.search(r"5 test sentences: BLEU [\d.]+\n", out) and len(re.findall("epoch 1/1: loss", out)) == 1


@pytest.mark.parametrize("with_test", [False, True])
def test_transformer_in_python_says_what_its_bleu_is_of(tmp_path, language, with_test):
    script = PYTHON / "transformer_wmt14" / "train.py"
    files = texts(language, "train", *(["test"] if with_test else []))
    out, _ = job.run(job.python(1, script, *files, "--epochs", 1, "--test_pairs", 5), tmp_path)
    assert re.search(r"5 test sentences: BLEU" if with_test else "5 sentences that it was trained on: BLEU", out)


@pytest.mark.parametrize("text", ["made up", "WMT14"])
def test_elastic_script(tmp_path, text):
    """Tutorial 004 from end to end; the script itself fails where losses, conversions or predictions differ."""
    source = job.pages.SHARED / "data" / "wmt14"
    if text == "WMT14" and not source.exists():
        pytest.skip("../shared/data/wmt14 is absent")
    out, _ = job.run(["bash", job.EXAMPLES / "elastic.sh", tmp_path / "out", *([source] if text == "WMT14" else [])], tmp_path, timeout=3600,
                     TESSERA_BIN=job.BIN, PYTHON=sys.executable)
    assert len(re.findall(r"\d+ steps, losses at most \S+ apart", out)) == 4 and "== done" in out
    # Of a pipeline's ranks those of both stages.
    made_of = [re.findall(r"\d+", line) for line in re.findall(r"rank 3 is made of those of (.*)", out)]
    assert len(made_of) == 2 and {int(rank) // 4 for rank in made_of[1]} == {0, 1}
    assert len(re.findall(r"\d+ words, 0 differ", out)) == 4


def test_elastic_job_in_mindspore(tmp_path):
    """The tutorial's job in its own words, on four ranks and then on two."""
    source = job.pages.SHARED / "data" / "wmt14"
    if not source.exists():
        pytest.skip("../shared/data/wmt14 is absent")
    pairs = tessera.data.read_segment_pairs(source / "newstest2014-fren-ref.en.sgm", source / "newstest2014-fren-ref.fr.sgm")
    tessera.data.write_sentence_pairs(tmp_path / "pairs.txt", pairs[:700])
    script = [PYTHON / "transformer_wmt14" / "elastic.py", "--file_path", "pairs.txt", "--d_model", 32, "--vocab_size", 500, "--lr", 1e-3, "--mp", 2]
    whole, _ = job.run(job.python(4, *script, "--epochs", 2), tmp_path)
    job.run(["rm", "-r", "src_checkpoints"], tmp_path)
    job.run(job.python(4, *script, "--epochs", 1), tmp_path)
    job.run(job.python(2, *script, "--only_compile"), tmp_path)
    job.run([job.BIN / "tessera", "ckpt", "transform", "src_checkpoints", "dst_checkpoints", "--prefix", "transformed", "--src_strategy", "src_strategy.ckpt",
             "--dst_strategy", "dst_strategy.ckpt"], tmp_path)
    second, _ = job.run(job.python(2, *script, "--load", "dst_checkpoints", "--epochs", 1), tmp_path)

    def of_epoch(out, epoch):
        return {step: float(loss) for at, step, loss in job.losses(out) if at == epoch}

    assert len(of_epoch(second, 1)) > 5 and of_epoch(second, 1)[1] < of_epoch(whole, 1)[1]
    assert of_epoch(second, 1) == pytest.approx(of_epoch(whole, 2), rel=1e-3)  # products are float16
