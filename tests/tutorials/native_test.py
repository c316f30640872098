"""The examples of the package tessera in examples/python/native run, on one rank and on two, learn, and refuse what makes no sense."""
import re
import subprocess

import pytest

import job

NATIVE = job.EXAMPLES / "python" / "native"
SCRIPTS = sorted(path.name for path in NATIVE.glob("*.py"))
RANKS = pytest.mark.parametrize("ranks", [1, 2])


def run(ranks, folder, name, *options):
    """What rank 0 printed."""
    out, _ = job.run([*([job.BIN / "tessera", "run", "-n", ranks] if ranks > 1 else []), *job.python(1, NATIVE / name, *options)], folder)
    return re.sub(r"^\[0\] ", "", out, flags=re.M)


def losses(out):
    """Those of the epochs, as they were printed."""
    return [float(loss) for loss in re.findall(r"^epoch \d+/\d+: loss ([\d.]+),", out, re.M)]


def test_there_are_scripts():
    assert SCRIPTS == ["custom_data_set.py", "custom_operator.py", "fine_tune.py", "image_classifier.py", "language_model.py", "translation.py"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_its_help_says_how_it_is_started(tmp_path, name):
    assert f"tessera run -n 2 python {name}" in run(1, tmp_path, name, "--help")
    assert len((NATIVE / name).read_text(encoding="utf-8").splitlines()) < 120, "an example is to be read at once"


@pytest.mark.parametrize("name, options, words", [
    ("language_model.py", ["--text", "missing.txt"], "there is no missing.txt"),
    ("language_model.py", ["--hidden_size", 30], "--hidden_size must be a multiple of 4, is 30"),
    ("language_model.py", ["--text", "short.txt"], "the text has 5 bytes"),
    ("language_model.py", ["--parallel_mode", "all"], "invalid choice: 'all'"),
    ("image_classifier.py", ["--data_path", "."], "--data_path: . has no test_batch.bin"),
    ("image_classifier.py", ["--batch_size", 30, "--train_images", 20], "--batch_size must be at most --train_images 20, is 30"),
    ("translation.py", ["--source", "short.txt"], "--source and --target go together"),
    ("translation.py", ["--source", "short.txt", "--target", "two.txt"], "short.txt has 1 lines and two.txt 2"),
    ("translation.py", ["--pairs", 50], "of 50 pairs --test_pairs 100 leave fewer than --batch_size 64"),
    ("custom_data_set.py", ["--resume"], "--resume: there is no readings.ckpt"),
    ("custom_data_set.py", ["--batch_size", 500], "--batch_size must be at most 400 and a multiple of the number of processes, 1, is 500"),
    ("fine_tune.py", ["--weights", "short.txt"], "short.txt is no .safetensors file"),
    ("fine_tune.py", ["--rename", "a:b"], "--rename: a:b must be THERE=HERE"),
    ("custom_operator.py", ["--levels", 0], "--levels and --epochs must be at least 1"),
])
def test_what_makes_no_sense_is_refused(tmp_path, name, options, words):
    (tmp_path / "short.txt").write_text("a b c")
    (tmp_path / "two.txt").write_text("a b c\nd e f\n")
    command = [str(word) for word in job.python(1, NATIVE / name, *options)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=job.environment(), timeout=600)
    assert done.returncode == 2 and words in done.stderr, done.stdout + done.stderr


LANGUAGE_MODEL = ["--epochs", 2, "--steps", 20, "--batch_size", 8, "--length", 16, "--hidden_size", 32, "--count", 40]


def test_the_language_model_learns_and_writes_and_a_checkpoint_writes_the_same(tmp_path):
    alone = run(1, tmp_path, "language_model.py", *LANGUAGE_MODEL)
    first, last = losses(alone)
    written = alone.partition("--- temperature 0.0:\n")[2]
    assert last < first < 6 and written.startswith("The ") and "--- temperature 0.7:\nThe " in written
    resumed = run(1, tmp_path, "language_model.py", *LANGUAGE_MODEL, "--resume")
    assert "gpt-2_20.ckpt, after step 40" in resumed and not losses(resumed) and resumed.endswith(written), resumed
    for mode in ("data_parallel", "auto_parallel"):
        spread = run(2, tmp_path, "language_model.py", *LANGUAGE_MODEL, "--parallel_mode", mode)
        assert losses(spread) == pytest.approx([first, last], rel=1e-3), mode
        assert spread.count("--- temperature") == 2


IMAGES = ["--train_images", 200, "--test_images", 20, "--batch_size", 20, "--width", 4]


def test_the_image_classifier_learns_alike_on_one_rank_and_on_two(tmp_path):
    alone = run(1, tmp_path, "image_classifier.py", *IMAGES, "--epochs", 3)
    assert len(losses(alone)) == 3 and losses(alone)[-1] < losses(alone)[0]
    assert re.search(r"^epoch \d was the best: top-1 accuracy 0\.\d+, top-5 [01]\.\d+$", alone, re.M)
    assert losses(run(2, tmp_path, "image_classifier.py", *IMAGES, "--epochs", 3)) == pytest.approx(losses(alone), rel=5e-3)


def test_the_image_classifier_stops_early(tmp_path):
    """The accuracy of 8 images cannot rise in each of 12 epochs."""
    out = run(1, tmp_path, "image_classifier.py", *IMAGES, "--test_images", 8, "--epochs", 12, "--patience", 1)
    stopped = int(re.search(r"^stopped after epoch (\d+): 1 epochs were no better$", out, re.M)[1])
    assert len(losses(out)) == stopped < 12 and f"epoch {stopped - 1} was the best" in out


TRANSLATION = ["--test_pairs", 10, "--epochs", 3, "--hidden_size", 16]


@RANKS
def test_the_translation_of_made_up_sentences_is_scored(tmp_path, ranks):
    out = run(ranks, tmp_path, "translation.py", *TRANSLATION, "--pairs", 400)
    assert len(losses(out)) == 3 and losses(out)[-1] < losses(out)[0]
    assert re.search(r"^10 test sentences: BLEU [\d.]+, \d+ without a fault$", out, re.M), out


def test_the_translation_of_given_files_is_learnt(tmp_path):
    sentences = [f"{'one two three'.split()[i % 3]} {'red green'.split()[i % 2]} hats" for i in range(200)]
    (tmp_path / "source.txt").write_text("\n".join(sentences) + "\n")
    (tmp_path / "target.txt").write_text("\n".join(sentence.upper() for sentence in sentences) + "\n")
    out = run(1, tmp_path, "translation.py", "--source", "source.txt", "--target", "target.txt", *TRANSLATION, "--epochs", 60, "--batch_size", 19)
    assert "10 without a fault" in out, out


@pytest.mark.parametrize("first_ranks, second_ranks", [(1, 1), (2, 2), (2, 1)])
def test_the_data_set_goes_on_in_the_middle_of_an_epoch(tmp_path, first_ranks, second_ranks):
    def said(ranks, *options):
        out = run(ranks, tmp_path, "custom_data_set.py", "--epochs", 2, *options)
        return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+): loss ([\d.]+)$", out, re.M)}, out

    whole, _ = said(first_ranks, "--checkpoint", "whole.ckpt")
    first, out = said(first_ranks, "--stop_after", 13)
    assert "1 of 2 epochs are done, and 120 of 400 rows of the next" in out
    second, _ = said(second_ranks, "--resume")
    assert list(whole) == list(range(1, 21)) and list(first) == list(range(1, 14)) and list(second) == list(range(14, 21))
    assert whole[20] < whole[1]
    assert first | second == (whole if first_ranks == second_ranks else pytest.approx(whole, rel=1e-3))


@RANKS
def test_fine_tuning_takes_the_body_and_leaves_what_is_frozen(tmp_path, ranks):
    out = run(ranks, tmp_path, "fine_tune.py")
    assert "loaded: body.0.weight body.0.bias body.1.weight body.1.bias" in out and "new: head.weight head.bias" in out
    assert "left in the file: model.classifier.weight model.classifier.bias" in out
    frozen = dict(re.findall(r"^(\S+): (frozen|moved) ?", out, re.M))
    assert frozen == {f"{cell}.{name}": "frozen" if cell == "body.0" else "moved" for cell in ("body.0", "body.1", "head") for name in ("weight", "bias")}
    tuned, alone = map(float, re.search(r"held out: ([\d.]+); learnt from 120 rows alone: ([\d.]+)", out).groups())
    assert tuned > alone


@pytest.mark.parametrize("ranks, options", [(1, []), (2, []), (2, ["--parallel_mode", "auto_parallel"])])
def test_the_operators_have_right_gradients_and_train(tmp_path, ranks, options):
    out = run(ranks, tmp_path, "custom_operator.py", "--epochs", 5, *options)
    assert len(losses(out)) == 10
    values, passing, without = re.search(r"^weights of (\d) values: accuracy ([\d.]+); without a gradient of rounding ([\d.]+)$", out, re.M).groups()
    assert values == "3" and float(passing) > float(without)
