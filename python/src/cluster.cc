// This process's place in its job.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind.h"
#include "python/src/helped_module.h"
#include "python/src/threads.h"

namespace tessera::python {
namespace {

// How this process joins its job and leaves it.
void bind_membership(nb::module_& sub) {
  helped(sub).def(
      "init", [] { context(); }, "Joins the job. Raises IoError when the other ranks do not come.");
  helped(sub).def("is_initialized", &has_context);
  helped(sub).def(
      "_srun_place",
      []() -> std::optional<std::tuple<int, int, int>> {
        const auto place = cluster::srun_rank_from_environment();
        if (!place) return std::nullopt;
        return std::tuple{place->rank, place->local_rank, place->size};
      },
      "Rank, place on its node and number of ranks, where srun has started this process beside others; else None.");
  helped(sub).def(
      "leave", &leave, "failure"_a = "", "failed_rank"_a = nb::none(),
      R"(Ends this rank's part of the job: waits for the ends of the others, or, with a failure, ends them with it.

failed_rank: the rank with whose failure this one's began, as an IoError that tells of another rank has it; None: this one.

The end of the process does it by itself: an exception, and an exit code other than 0, are failures.)");
  helped(sub).def(
      "_note_left", [](nb::handle traceback) { note_left(traceback); }, "traceback"_a.none(),
      "The script is left here, by an exception that nobody catches.");
  helped(sub).def("_fail_end", &fail_end, "What the end of the process waited for has failed: its exit code is not 0.");
  helped(sub).def("_fail_as_usage", &fail_as_usage,
                  "The environment's variables make no sense: the exit code of the end says so.");
  helped(sub).def("transport", [] { return joined_context().transport(); });
  helped(sub).def(
      "_fix_ranks",
      [](const std::string& why) {
        if (auto* recovery = context().recovery()) recovery->fix_ranks(why, "it does not train yet");
      },
      "why"_a, "Says to an elastic job why it cannot go on with another number of ranks.");
}

void bind_groups(nb::module_& sub) {
  const auto of_joined = [](const std::string& group) -> comm::Communicator& { return joined_context().group(group); };
  const auto world = cluster::kWorldGroup;
  helped(sub).def(
      "rank", [of_joined](const std::string& group) { return of_joined(group).rank(); }, "group"_a = world,
      "This process's place in the group.");
  helped(sub).def(
      "size", [of_joined](const std::string& group) { return of_joined(group).size(); }, "group"_a = world,
      "Ranks of the group.");
  helped(sub).def(
      "ranks", [of_joined](const std::string& group) { return of_joined(group).ranks(); }, "group"_a = world,
      "The world ranks of the group, in its order.");
  helped(sub).def(
      "local_rank", [] { return joined_context().local_rank(); }, "This process's place among those of its host.");
  helped(sub).def("local_size", [] { return joined_context().local_size(); });
  helped(sub).def(
      "num_servers", [] { return joined_context().num_servers(); },
      "So many of the first ranks keep parameters, as the launcher says; 0 where it says nothing.");
  helped(sub).def("num_compute_threads", [] { return joined_context().num_compute_threads(); });
  helped(sub).def(
      "create_group",
      [](const std::string& name, const std::vector<int>& ranks) { context().create_group(name, ranks); }, "name"_a,
      "ranks"_a, "A group of these world ranks. Every rank of the job calls it, in the same order.");
  helped(sub).def(
      "destroy_group", [](const std::string& name) { context().destroy_group(name); }, "name"_a);
  helped(sub).def(
      "has_group", [](const std::string& name) { return joined_context().has_group(name); }, "name"_a);
}

// What all ranks of a group do together.
void bind_meetings(nb::module_& sub) {
  helped(sub).def(
      "barrier",
      [](const std::string& group) {
        comm::Communicator& own = context().group(group);
        const WithoutGil computing;
        own.barrier("barrier");
      },
      "group"_a = cluster::kWorldGroup, "Waits until every rank of the group is here.");
  helped(sub).def(
      "run_together",
      [](const std::string& what_fails, const nb::callable& work) {
        train::RankBarrier barrier(context().world());
        const WithoutGil computing;
        return checkpoint::run_together(barrier, what_fails.c_str(), [&] {
          const WithGil acquire;
          return nb::cast<std::string>(work());
        });
      },
      "what_fails"_a, "work"_a,
      R"(Every rank calls it: calls work(), which returns a str, and returns what each rank's returned, by rank. It may take as long as
a disk takes: the waiting ranks are told that this one is alive. work must not communicate. Where it raises on any rank, nobody goes
on: that rank raises its own error, the others IoError with its number, what_fails ("cannot save") and its words.)");
}

void bind_scheduler(nb::module_& sub) {
  helped(sub).def(
      "run_scheduler",
      [](const std::string& host, int port, int num_workers, int64_t timeout_ms, const std::string& state,
         int64_t max_restarts, int64_t node_timeout_ms) {
        const nb::gil_scoped_release release;
        return cluster::run_scheduler_from_environment({.host = host,
                                                        .port = port,
                                                        .num_workers = num_workers,
                                                        .join_timeout_ms = timeout_ms,
                                                        .max_restarts = max_restarts,
                                                        .node_timeout_ms = node_timeout_ms,
                                                        .state_path = state});
      },
      "host"_a, "port"_a, "num_workers"_a, "timeout_ms"_a = 600000, "state"_a = "", "max_restarts"_a = 0,
      "node_timeout_ms"_a = 30000,
      R"(Is the scheduler of a job, as `tessera scheduler` is, until the job has ended. Returns an exit code: 0, 1 when it has failed,
128 + N after signal N.)");
}

// What a process has, whatever its job.
void bind_seed_and_gpus(nb::module_& m) {
  helped(m).def(
      "set_seed",
      [](Seed seed) {
        global_seed() = seed;
        draws_of_script() = 0;
      },
      "seed"_a, "Of what is drawn from here on: initial values, dropout, augmentation, order of samples.");
  helped(m).def(
      "gpus",
      [] {
        std::vector<std::string> names;
        bool is_any_usable = false;
        try {
          for (const auto& gpu : cuda::cuda_devices()) {
            names.push_back(gpu.name);
            is_any_usable = is_any_usable || gpu.unusable.empty();
          }
        } catch (const IoError&) {
          // There is no driver, or this build has no CUDA: no GPU can be used.
        }
        return is_any_usable ? names : std::vector<std::string>();
      },
      "The names of the GPUs that this process could compute on, by their numbers; empty where none can be used.");
  helped(m).def("get_seed", [] { return global_seed(); });
}

}  // namespace

void bind_cluster(nb::module_& m) {
  auto sub = m.def_submodule("cluster", R"(This process's place in its job.

A script is started alone, by `mpirun -n N python script.py`, by `srun -n N python script.py` or by `tessera run -n N python
script.py`; it joins its job at the first use of any of these functions, of a parallel Model, and under `tessera run` of any
Model, which waits for the other ranks.)");
  bind_membership(sub);
  bind_groups(sub);
  bind_meetings(sub);
  bind_scheduler(sub);
  bind_seed_and_gpus(m);
}

}  // namespace tessera::python
