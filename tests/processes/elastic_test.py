"""An elastic job goes on with the ranks that are there: its losses are, to 1e-10 in float64, those of a job with all its ranks. Ranks are
killed, launchers are killed and told to end, others join, and the job is resized by hand."""

import json
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import time

import recovery_test
from own_tests import OwnTests, main
from recovery_test import ENDLESS, LIMIT_S, TESSERA, environment, eventually, free_port, ranks_of, run


def losses_of(out):
    """All losses by step: a step that is done again with another number of ranks rounds otherwise."""
    found = {}
    for step, loss in re.findall(r"loss (\d+) (\S+)", out):
        found.setdefault(int(step), []).append(float.fromhex(loss))
    return found


class Elastic(recovery_test.Recovery):
    def job(self, *arguments):
        return super().job("--f64", *arguments)

    def result_of(self, out):
        return {step: losses[0] for step, losses in losses_of(out).items()}

    def assert_undisturbed(self, out, ranks, *arguments):
        self.assert_equal_losses(out, self.undisturbed(ranks, *arguments, "--stop_after", max(losses_of(out))))

    def assert_equal_losses(self, out, straight):
        found = losses_of(out)
        self.assertEqual(sorted(found), sorted(straight), out)
        for step, losses in found.items():
            for loss in losses:
                self.assertAlmostEqual(loss, straight[step], delta=1e-10, msg=f"step {step}: {out}")


class OnOneHost(Elastic):
    def test_a_rank_that_is_killed_leaves_the_others_to_go_on(self):
        for options in ((), ("--automatic",)):
            with self.subTest(options=options):
                arguments = ("--steps", 12, *options)
                straight = self.undisturbed(4, *arguments)
                code, out = run([TESSERA, "run", "-n", 4, "--min_ranks", 2,
                                 *self.job(*arguments, "--kill_rank", 2, "--kill_step", 5, "--kill_once", self.once())])
                self.assertEqual(code, 0, out)
                self.assertIn("tessera run: the job goes on without rank 2: killed by signal SIGKILL", out)
                self.assert_equal_losses(out, straight)

    def test_rank_0_may_be_the_one(self):
        straight = self.undisturbed(3, "--steps", 12)
        code, out = run([TESSERA, "run", "-n", 3, "--min_ranks", 2,
                         *self.job("--steps", 12, "--kill_rank", 0, "--kill_step", 5, "--kill_once", self.once())])
        self.assertEqual(code, 0, out)
        self.assert_equal_losses(out, straight)

    def test_fewer_than_min_ranks_are_too_few(self):
        code, out = run([TESSERA, "run", "-n", 2, "--min_ranks", 2, *self.job("--steps", 12, "--kill_rank", 1, "--kill_step", 5)])
        self.assertEqual(code, 1, out)
        self.assertIn("the job needs 2 ranks at least", out)

    def test_a_rank_that_does_not_come_back_in_time_is_not_waited_for(self):
        straight = self.undisturbed(3, "--steps", 12)
        starts = self.once()
        script = f'if [ $RANK_ID = 1 ]; then if [ -e {starts} ]; then exec sleep 1000; fi; touch {starts}; fi; exec "$@"'
        code, out = run([TESSERA, "run", "-n", 3, "--min_ranks", 2, "--max_restarts", 9, "--rank_timeout", 2, "sh", "-c", script, "sh",
                         *self.job("--steps", 12, "--kill_rank", 1, "--kill_step", 5, "--kill_once", self.once())])
        self.assertEqual(code, 0, out)
        self.assertIn("starting it again (1 of 9 losses that it survives)", out)
        self.assertIn("the job goes on without rank 1: it has not come back within 2000 ms", out)
        self.assert_equal_losses(out, straight)

    def test_a_rank_that_comes_back_in_time_is_one_of_the_ranks_again(self):
        straight = self.undisturbed(3, "--steps", 12)
        code, out = run([TESSERA, "run", "-n", 3, "--min_ranks", 2, "--max_restarts", 9,
                         *self.job("--steps", 12, "--kill_rank", 1, "--kill_step", 5, "--kill_once", self.once())])
        self.assertEqual(code, 0, out)
        self.assertNotIn("the job goes on without", out)
        self.assert_equal_losses(out, straight)

    def test_where_pieces_are_lost_the_newest_checkpoint_counts(self):
        arguments = ("--steps", 12, "--shards")  # the optimizer's states are split over the ranks
        straight = self.undisturbed(4, *arguments)
        saved = self.once()
        code, out = run([TESSERA, "run", "-n", 4, "--min_ranks", 2,
                         *self.job(*arguments, "--checkpoint_dir", saved, "--save_steps", 4, "--kill_rank", 2, "--kill_step", 7, "--kill_once",
                                   self.once())])
        self.assertEqual(code, 0, out)
        self.assertRegex(out, "what 3 of the 4 ranks that have trained have kept is not whole: a checkpoint counts")
        self.assertEqual(len(losses_of(out)[5]), 2, "the training goes on after step 4")
        self.assertEqual(len(losses_of(out)[4]), 1, out)
        self.assert_equal_losses(out, straight)

    def test_a_training_that_needs_its_ranks_ends_and_says_so_with_the_checkpoint_that_is_left(self):
        saved = self.once()
        for options, newest in (((), "there is no checkpoint, for no ModelCheckpoint is among the callbacks"),
                                (("--checkpoint_dir", saved, "--save_steps", 2), f"the newest checkpoint is {saved}/job-1_4.ckpt, after step 4")):
            with self.subTest(options=options):
                code, out = run([TESSERA, "run", "-n", 2, "--min_ranks", 1,
                                 *self.job("--steps", 12, "--stages", 2, "--network", "small_in_stages", "--kill_rank", 1, "--kill_step", 5, *options)])
                self.assertEqual(code, 1, out)
                self.assertRegex(out, "the job cannot go on with another number of ranks: it trains in pipeline")
                self.assertIn(newest, out)

    def test_numbers_that_do_not_fit_are_refused(self):
        for words, what in ((["run", "-n", 2, "--min_ranks", 3], "--min_ranks must be from 1 to the number of ranks, 2, got 3"),
                            (["run", "-n", 2, "--servers", 1, "--min_ranks", 2], "the number of ranks of a job with servers stays"),
                            (["scheduler", "--workers", 4, "--min_ranks", 5, "--port", 0], "--min_ranks 5: the job begins with 4 ranks"),
                            (["scheduler", "--workers", 4, "--min_ranks", 2, "--max_ranks", 3, "--port", 0], "--max_ranks 3: the job begins with 4 ranks")):
            code, out = run([TESSERA, *words] + (["true"] if words[0] == "run" else []))
            self.assertNotEqual(code, 0, out)
            self.assertIn(what, out)


class Scheduled(Elastic, recovery_test.Scheduled):
    """A scheduler, and launchers that come and go."""

    def begin(self, workers, *arguments, options=()):
        self.port, self.outs, self.logs, self.processes = free_port(), [], [], {}
        self.arguments = arguments
        self.addCleanup(self.end_all)
        self.begin_process("scheduler", [TESSERA, "scheduler", "--workers", workers, "--port", self.port, *options])

    def begin_process(self, name, command):
        output = open(self.folder / f"{name}.{secrets.token_hex(4)}", "w+", encoding="utf-8")
        self.outs.append(output)
        self.processes[name] = subprocess.Popen([str(word) for word in command], env=environment(TESSERA_TIMEOUT_MS=20000), stdout=output,
                                                stderr=subprocess.STDOUT)

    def launch(self, name, ranks):
        # Into files: what ranks have written into the pipe of a launcher that is killed is lost.
        self.logs.append(self.folder / f"{name}.{secrets.token_hex(4)}.log")
        self.begin_process(name, [TESSERA, "run", "--join", f"127.0.0.1:{self.port}", "--node_id", name, "-n", ranks, "--log_dir", self.logs[-1],
                          *self.job(*self.arguments)])

    def generation(self, number, ranks):
        """Waits until it begins, and returns how long that has taken."""
        before = time.monotonic()
        line = f"generation {number} begins: {ranks} ranks"
        eventually(lambda: line in self.said(), f"{line}: {self.said()}", 60)
        return time.monotonic() - before

    def ends(self, name, code):
        try:
            self.assertEqual(self.processes[name].wait(timeout=LIMIT_S), code, name + self.said())
        except subprocess.TimeoutExpired:
            self.fail(f"{name} hangs: {self.said()}")

    def end_well(self, *names):
        """An endless job makes some more steps, and these end with it."""
        self.goes_on()
        self.over.touch()
        for name in names:
            self.ends(name, 0)

    def goes_from_four_to_three_to_two_to_four(self, seed, *options):
        draws = random.Random(seed)
        first, second = draws.sample(["middle", "right"], 2)
        steps = sorted(draws.sample(range(8, 40), 2))
        with self.subTest(seed=seed, first=first, steps=steps):
            self.begin(4, *self.endless(*options, "--checkpoint_dir", self.once(), "--save_steps", 7), options=("--min_ranks", 2, "--max_ranks", 4))
            for name, ranks in (("left", 2), ("middle", 1), ("right", 1)):
                self.launch(name, ranks)
            self.after_step(steps[0])
            os.kill(next(iter(ranks_of(self.processes[first]).values())), signal.SIGKILL)  # a rank
            resize_s = self.generation(2, 3)
            self.ends(first, 1)
            self.goes_on(max(3, steps[1] - self.last_step()))
            self.processes[second].kill()  # a launcher, and its rank with it
            self.processes[second].wait()
            self.generation(3, 2)
            self.goes_on()
            self.launch("later", 2)
            self.generation(4, 4)
            self.end_well("left", "later", "scheduler")
            out = self.said()
            self.assertRegex(out, r"after step \d+ 2 more ranks are taken in")
            self.assert_undisturbed(out, 4, *ENDLESS, *options)
            print(f"seed {seed}, {' '.join(options) or 'data parallel'}: from 4 to 3 ranks in {resize_s:.2f} s", file=sys.stderr)

    def test_data_parallel_goes_from_four_to_three_to_two_to_four(self):
        for seed in (1, 2):
            self.goes_from_four_to_three_to_two_to_four(seed)

    def test_automatic_parallel_goes_from_four_to_three_to_two_to_four(self):
        self.goes_from_four_to_three_to_two_to_four(3, "--automatic")

    def test_a_launcher_that_is_told_to_end_leaves_after_its_step_and_the_others_go_on(self):
        for saves in ((), ("--checkpoint_dir", self.once(), "--save_steps", 100000)):
            with self.subTest(saves=saves):
                self.begin(3, *self.endless(*saves), options=("--min_ranks", 2, "--max_restarts", 9))
                self.launch("left", 2)
                self.launch("right", 1)
                self.after_step(10)
                self.processes["right"].terminate()
                self.ends("right", 128 + signal.SIGTERM)
                self.generation(2, 2)
                self.end_well("left", "scheduler")
                out = self.said()
                self.assertRegex(out, r"a rank ends by SIGTERM after epoch \d+, step \d+(, which is saved as \S+\.ckpt)?; the training goes on without it")
                self.assertIn("the job goes on without", out)
                self.assert_undisturbed(out, 3, *ENDLESS)

    def test_by_hand_ranks_leave_and_others_are_taken_in_at_once(self):
        self.begin(4, *self.endless(), options=("--min_ranks", 2, "--max_ranks", 4))
        self.launch("left", 2)
        self.launch("right", 2)
        self.after_step(10)
        resize = [TESSERA, "cluster", "resize", f"127.0.0.1:{self.port}"]
        code, out = run([*resize, 1])
        self.assertEqual(code, 1, out)
        self.assertIn("the job has from 2 to 4 ranks, got 1", out)
        code, out = run([*resize, 2])
        self.assertEqual(code, 0, out)
        self.generation(2, 2)
        self.ends("right", 1)
        self.goes_on()
        self.launch("later", 1)
        self.after_words("it takes these ranks in when it saves next")
        code, out = run([*resize, 3])
        self.assertEqual(code, 0, out)
        self.generation(3, 3)
        self.end_well("left", "later", "scheduler")
        self.assert_undisturbed(self.said(), 4, *ENDLESS)

    def test_by_hand_a_training_that_needs_its_ranks_saves_the_step_and_stops_and_says_so(self):
        saved, pipeline = self.once(), ("--stages", 2, "--network", "small_in_stages")
        self.begin(2, *self.endless(*pipeline, "--checkpoint_dir", saved), options=("--min_ranks", 1, "--max_restarts", 9))
        self.launch("left", 1)
        self.launch("right", 1)
        self.after_step(3)
        code, out = run([TESSERA, "cluster", "resize", f"127.0.0.1:{self.port}", 1])
        self.assertEqual(code, 0, out)
        self.assertRegex(out, "^asked for 1 rank in place of 2, which the job cannot have: it trains in pipeline.*\n"
                              "it saves the step that it is in, on all ranks, and stops")
        for name in ("left", "right", "scheduler"):
            self.ends(name, 1)
        out = self.said()
        words = re.search(r"asked for 1 rank in place of 2, which the job cannot have: it trains in pipeline[^\n]*: it stops after epoch (\d+), step (\d+), "
                          rf"saved as ({saved}/\S+\.ckpt); start it again with that number of ranks", out)
        self.assertIsNotNone(words, out)
        self.assertNotIn("starting it again", out)
        # What goes on from there has the losses of a job that nobody has stopped.
        steps = (int(words[1]) - 1) * 10 + int(words[2])
        code, out = run([TESSERA, "run", "-n", 2, *self.job(*ENDLESS, *pipeline, "--resume", words[3], "--stop_after", steps + 3)])
        self.assertEqual(code, 0, out)
        straight = self.undisturbed(2, *ENDLESS, *pipeline, "--stop_after", steps + 3)
        self.assert_equal_losses(out, {step: loss for step, loss in straight.items() if step > steps})

    def test_by_hand_a_training_that_needs_its_ranks_and_saves_nothing_is_not_stopped(self):
        self.begin(2, *self.endless("--stages", 2, "--network", "small_in_stages"), options=("--min_ranks", 1))
        self.launch("left", 2)
        self.after_step(3)
        code, out = run([TESSERA, "cluster", "resize", f"127.0.0.1:{self.port}", 1])
        self.assertEqual(code, 1, out)
        self.assertIn("it is not stopped for another number, for nothing of it would be saved: no ModelCheckpoint is among the callbacks: add one", out)
        self.end_well("left", "scheduler")

    def test_a_training_that_needs_its_ranks_saves_and_ends_where_one_is_told_to_end(self):
        saved = self.once()
        self.begin(2, *self.endless("--stages", 2, "--network", "small_in_stages", "--checkpoint_dir", saved), options=("--min_ranks", 1))
        self.launch("left", 1)
        self.launch("right", 1)
        self.after_step(3)
        self.processes["right"].terminate()
        self.ends("right", 128 + signal.SIGTERM)
        for name in ("left", "scheduler"):
            self.ends(name, 1)
        out = self.said()
        words = re.search(rf"SIGTERM ends the training after epoch \d+, step \d+: it is saved as ({saved}/\S+\.ckpt)|"
                          rf"a rank ends by SIGTERM after epoch \d+, step \d+, which is saved as ({saved}/\S+\.ckpt)", out)
        self.assertIsNotNone(words, out)
        self.assertIn("the job cannot go on with another number of ranks: it trains in pipeline", out)
        self.assertIn(f"the newest checkpoint is {words[1] or words[2]}, after step", out)

    def test_a_planned_change_is_said_once_and_nothing_reads_like_a_failure(self):
        self.begin(4, *self.endless(), options=("--min_ranks", 2, "--max_ranks", 4))
        self.launch("left", 2)
        self.launch("right", 2)
        self.after_step(5)
        code, out = run([TESSERA, "cluster", "resize", f"127.0.0.1:{self.port}", 2])
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r"^asked for 2 ranks in place of 4: right/0, right/1 leave now, and the other ranks leave the step that they are in")
        self.ends("right", 1)
        self.generation(2, 2)
        self.goes_on()
        self.launch("later", 1)
        self.generation(3, 3)
        self.end_well("left", "later", "scheduler")
        out = self.said()
        self.assertEqual(out.count("tessera run: the job goes on without ranks 2, 3: the job is resized from 4 to 2 ranks\n"), 1, out)
        self.assertEqual(len(re.findall(r"ends, and all ranks begin anew for the next one: the job is resized from 4 to 2 ranks", out)), 1, out)
        self.assertEqual(len(re.findall(r"ends, and all ranks begin anew for the next one: after step \d+ 1 more rank is taken in", out)), 1, out)
        for words in ("error", "failed", "Traceback", "why:", "heard nothing", "stopped in", "is lost"):
            self.assertNotIn(words, out)

    def test_a_spare_takes_the_place_of_a_lost_rank_at_once(self):
        for options in ((), ("--shards",), ("--stages", 2, "--network", "small_in_stages")):
            with self.subTest(options=options):
                self.begin(4, *self.endless(*options), options=("--spares", 1))
                self.launch("left", 2)
                self.launch("right", 2)
                self.after_step(3)
                self.launch("spare", 1)
                self.after_words("these wait, and take the place of one that is lost")
                self.goes_on()
                os.kill(ranks_of(self.processes["right"])[3], signal.SIGKILL)
                self.generation(2, 4)
                self.end_well("left", "spare", "right", "scheduler")
                out = self.said()
                self.assertNotIn("starting it again", out)
                self.assertIn("the job goes on without it", out)
                self.assertEqual(len(losses_of(out)[1]), 1, "it has begun from the start")
                found = {step: losses[0] for step, losses in losses_of(out).items()}
                self.assertEqual(found, self.undisturbed(4, *ENDLESS, *options, "--stop_after", max(found)))
                self.end_all()

    def test_a_spare_that_is_not_needed_ends_with_its_job(self):
        self.begin(2, *self.endless(), options=("--spares", 1))
        self.launch("left", 2)
        self.after_step(3)
        self.launch("spare", 1)
        self.after_words("these wait, and take the place of one that is lost")
        self.end_well("left", "spare", "scheduler")
        self.assertIn("tessera run: the job has ended, and has not needed these ranks", self.said())

    def joins_with(self, *other):
        """A launcher with other arguments joins a job that trains in f64; what it and the job say when both have ended."""
        self.begin(2, *self.endless(), options=("--min_ranks", 1, "--max_ranks", 4, "--max_restarts", 9))
        self.launch("middle", 2)
        self.after_step(5)
        # Its node is before those of the job, and so it would be rank 0.
        self.logs.append(self.folder / f"aside.{secrets.token_hex(4)}.log")
        self.begin_process("aside", [TESSERA, "run", "--join", f"127.0.0.1:{self.port}", "--node_id", "aside", "-n", 1, "--log_dir", self.logs[-1],
                                     *self.job(*other)])
        self.ends("aside", 1)
        self.end_well("middle", "scheduler")
        out = self.said()
        self.assert_undisturbed(out, 2, *ENDLESS)
        self.assertEqual(out.count("the job goes on without"), 2, out)  # the scheduler says it, and the launcher of the newcomer
        # Others may meet for the generation that ends by this: they begin anew by themselves.
        self.assertNotIn("starting it again", out)
        return out

    def test_a_newcomer_with_other_arguments_is_the_one_that_leaves(self):
        for other, words in ((("--steps", 10, "--epochs", 2), r"epochs: 2 here, 1000000 in the job"),
                             ((*ENDLESS, "--batch_size", 8), r"batch_size: 8 here, 16 in the job"),
                             ((*ENDLESS, "--network", "wide"), r"the network: one of 4 parameters with \d+ elements \(\w+\) here, one of \d+ parameters")):
            with self.subTest(other=other):
                self.assertRegex(self.joins_with(*other), r"the job goes on without rank 0: train: this rank does not fit its job: " + words)

    def test_a_newcomer_that_cannot_even_start_is_tried_once(self):
        self.assertRegex(self.joins_with("--no_such_option"), r"the job goes on without rank 0: exit code \d+")

    def test_a_scheduler_that_is_started_again_while_a_newcomer_waits_ends_nothing(self):
        options = ("--min_ranks", 1, "--max_ranks", 4, "--state", self.once())
        # An epoch takes 10 seconds: at its end ranks take others in.
        self.begin(2, *self.endless(pace=("--slow_rank", 0, "--slow_ms", 1000)), options=options)
        self.launch("left", 2)
        self.after_step(1)
        self.launch("later", 1)
        self.after_words("it takes these ranks in when it saves next")
        # The ranks know of it. They come to the end of the epoch while there is no scheduler, and are back before the newcomer is.
        self.processes["later"].send_signal(signal.SIGSTOP)
        self.kill("scheduler")
        self.after_words("1 more rank is taken in")
        self.begin_process("scheduler", [TESSERA, "scheduler", "--workers", 2, "--port", self.port, *options])
        self.generation(2, 2)
        self.processes["later"].send_signal(signal.SIGCONT)
        self.generation(3, 3)
        self.end_well("left", "later", "scheduler")
        self.assert_undisturbed(self.said(), 2, *ENDLESS)

    def test_a_rank_that_hangs_in_a_callback_is_ended_when_the_others_give_it_up_and_the_status_names_it(self):
        straight = self.undisturbed(3, "--steps", 12)
        hangs = self.once()
        self.begin(3, "--steps", 12, "--kill_rank", 1, "--kill_step", 5, "--hangs", "--kill_once", hangs, options=("--min_ranks", 2, "--node_timeout", 60))
        self.logs.append(self.folder / f"left.{secrets.token_hex(4)}.log")
        self.begin_process("left", [TESSERA, "run", "--join", f"127.0.0.1:{self.port}", "--node_id", "left", "-n", 3, "--timeout", 10,
                                    "--log_dir", self.logs[-1], *self.job(*self.arguments)])

        def status(*options):
            code, out = run([TESSERA, "cluster", "status", f"127.0.0.1:{self.port}", *options])
            return out if code == 0 else ""

        eventually(hangs.exists, "rank 1 hangs")
        def has_told():
            node = next((node for node in json.loads(status("--json") or '{"nodes": []}')["nodes"] if node["rank"] == 1), None)
            return node and node["step"] == 4 and node["doing"] == "the callbacks"

        eventually(has_told, "rank 1 has told what it does")
        # It does not notice before the others have given it up and this has been seen.
        rank = ranks_of(self.processes["left"])[1]
        os.kill(rank, signal.SIGSTOP)
        out = eventually(lambda: "it is at" in (out := status()) and "waiting" in out and out, "the status says who is waited for")
        os.kill(rank, signal.SIGCONT)
        self.assertIn("rank 1 has not left the generation that has ended; it is at the callbacks", out)
        self.assertRegex(out, r"waited for: (left/\d, )*left/1\b")
        self.assertNotIn("slowest", out)
        begin = time.monotonic()
        for name in ("left", "scheduler"):
            self.ends(name, 0)
        self.assertLess(time.monotonic() - begin, 30)
        out = self.said()
        self.assertRegex(out, r"tessera run: the job goes on without rank 1: it hangs: it has come no further for \d+ ms: step 5, the callbacks")
        self.assert_equal_losses(out, straight)


if __name__ == "__main__":
    main(loader=OwnTests())
