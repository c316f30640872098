#include "tessera/tools/run_command.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "tessera/engine.h"
#include "tessera/tessera.h"
#include "tessera/tools/arguments/option_use.h"
#include "tessera/tools/arguments/usage.h"
#include "tessera/tools/dashboard/dashboard_option.h"
#include "tessera/tools/dashboard/job_page.h"

namespace tessera::tools {
namespace {

// What the command line of a job says.
struct JobArguments {
  cluster::LaunchOptions launch;
  double timeout_s = 0;
  double rank_timeout_s = 60;
  std::string record_values;
  std::string record_steps;
  std::string compare_values;
  std::string on_difference;
  std::string trace_steps;
};

void add_options_of_ranks(CLI::App& run, JobArguments& job) {
  auto& options = job.launch;
  auto* n = run.add_option("-n,--num_ranks", options.num_processes, "ranks, a process each")->check(count_from(1));
  auto* threads = run.add_option("--threads", options.num_thread_ranks,
                                 "instead: the number of ranks, as threads of one process; not for programs in Python")
                      ->check(count_from(1))
                      ->excludes(n);
  auto* join =
      run.add_option("--join", options.scheduler, "HOST:PORT of the scheduler whose job these ranks are part of")
          ->check(scheduler_address())
          ->excludes(threads);
  run.add_option("--node_id", options.node_id, "the ranks' node ids are NODE_ID/0, NODE_ID/1, ...; default: drawn")
      ->check(node_ids())
      ->needs(join);
  run.add_option("--max_restarts", options.max_restarts,
                 "so often a rank that fails is started again and the job goes on; default: its failure ends the job")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}))
      ->excludes(join)
      ->excludes(run.get_option("--threads"));
  auto* min_ranks = run.add_option("--min_ranks", options.min_ranks,
                                   "an elastic job: where a rank is lost and not back, it goes on with the others, so "
                                   "many at least; default: it waits for all")
                        ->check(count_from(1))
                        ->excludes(join)
                        ->excludes(run.get_option("--threads"));
  run.add_option("--rank_timeout", job.rank_timeout_s,
                 "seconds that an elastic job waits for a lost rank, --max_restarts times; then not at all")
      ->check(seconds_to_wait())
      ->needs(min_ranks)
      ->capture_default_str();
  run.add_option("--servers", options.num_servers,
                 "so many further ranks, the first ones, keep the parameters that the program has set on servers")
      ->check(count_from(1));
}

// The records of values, by which runs are compared.
void add_options_of_records(CLI::App& run, JobArguments& job) {
  run.add_option("--record_values", job.record_values,
                 "the folder to which trainings record hashes of the values of their steps, for tessera bisect");
  run.add_option("--record_steps", job.record_steps,
                 "which steps: 5, 10-20, 100-, */50, separated by commas; default: all");
  run.add_option("--compare_values", job.compare_values,
                 "the folder of an earlier run's recorded values, which those of this one are compared with");
  run.add_option("--on_difference", job.on_difference,
                 "what a training does at the first value that is not that run's (stop)")
      ->check(CLI::IsMember({"stop", "warn"}));
}

// What is written and shown of the job while it runs, and when it fails.
void add_options_of_reports(CLI::App& run, JobArguments& job) {
  auto& options = job.launch;
  run.add_option("--report_dir", options.report_directory,
                 "the folder in which ranks and this command write what they know when the job fails or stands still;\n"
                 "default: what TESSERA_REPORT_DIR says, else `report` in that of --log_dir");
  add_dashboard_option(run, options.dashboard);
  run.add_option("--trace", options.timeline.file,
                 "record the timeline of all ranks into this file, for ui.perfetto.dev, chrome://tracing and `tessera\n"
                 "trace summary`; default: what TESSERA_TRACE says");
  run.add_option("--trace_steps", job.trace_steps,
                 "the steps that are recorded: FIRST:LAST, FIRST:, one step; or request, request:COUNT: so many (20) "
                 "from\nthe next one on, each time that this command gets SIGUSR2; default: all");
}

void add_options_of_transport(CLI::App& run, JobArguments& job) {
  auto& options = job.launch;
  run.add_option("--transport", options.transport,
                 "shm, tls, gloo or mpi; default: shared memory on one host, tls between hosts")
      ->check(CLI::IsMember({"shm", "tls", "gloo", "mpi", "threads"}));
  run.add_option("--interface", options.interface, "the network interface that tls and gloo use, as eth0");
  run.add_option("--timeout", job.timeout_s,
                 "seconds that a rank waits for another before the job fails (30); how long --join waits until "
                 "all\nranks are there, TESSERA_JOIN_TIMEOUT_MS says (600000)")
      ->check(seconds_to_wait());
  run.add_option("--num_threads", options.num_compute_threads,
                 "compute threads per rank; default: what TESSERA_NUM_THREADS, else OMP_NUM_THREADS says, else cores / "
                 "ranks")
      ->check(count_from(1));
}

// Where the folder that the option names can be none.
void refuse_no_folder(const char* option, const std::string& directory) {
  if (directory.empty()) return;
  const std::string why = cluster::why_no_folder(directory);
  if (!why.empty()) throw UsageError("{} {}: {}: name a folder, or one that is to be made", option, directory, why);
}

// What follows the program's name belongs to the program, options included.
void take_program(const CLI::App& run, JobArguments& job) {
  for (const auto& argument : run.remaining()) job.launch.command.push_back(argument);
}

void add_servers(const CLI::App& run, cluster::LaunchOptions& options) {
  if (options.num_servers > 0 && options.num_thread_ranks == 0 && run.get_option("-n")->empty()) {
    std::fprintf(stderr, "tessera run: one rank trains beside %d that keep%s parameters; -n N starts N that train\n",
                 options.num_servers, options.num_servers == 1 ? "s" : "");
  }
  (options.num_thread_ranks > 0 ? options.num_thread_ranks : options.num_processes) += options.num_servers;
}

// Ranks find in their environment what this process has in its own.
void hand_on_records(const CLI::App& run, const JobArguments& job) {
  require_effects(run, {{"--record_steps", !job.record_values.empty() || !job.compare_values.empty(),
                         "--record_values or --compare_values"},
                        {"--on_difference", !job.compare_values.empty(), "--compare_values"}});
  const std::array<std::pair<const char*, const std::string&>, 4> variables = {
      {{"TESSERA_RECORD_VALUES", job.record_values},
       {"TESSERA_RECORD_STEPS", job.record_steps},
       {"TESSERA_COMPARE_VALUES", job.compare_values},
       {"TESSERA_ON_DIFFERENCE", job.on_difference}}};
  for (const auto& [variable, value] : variables) {
    if (!value.empty()) setenv(variable, value.c_str(), 1);
  }
  refuse_no_folder("--record_values", job.record_values);
  if (!job.record_steps.empty()) from_user([&] { return train::RecordedSteps(job.record_steps); });
  if (!job.record_values.empty()) {
    FileSystem::local().create_directories(job.record_values);
    require_writable("--record_values", join_path(job.record_values, "step"));
  }
  if (!job.compare_values.empty() && session::recorded_steps(FileSystem::local(), job.compare_values).empty()) {
    throw InvalidArgument("--compare_values {}: it has no recorded steps; --record_values records them",
                          job.compare_values);
  }
}

void choose_folders(cluster::LaunchOptions& options) {
  refuse_no_folder("--log_dir", options.log_directory);
  refuse_no_folder("--report_dir", options.report_directory);
  if (!options.report_directory.empty()) return;
  options.report_directory = cluster::report_directory_from_environment();
  refuse_no_folder("TESSERA_REPORT_DIR", options.report_directory);
}

void choose_timeline(const CLI::App& run, JobArguments& job) {
  auto& recorded = job.launch.timeline;
  if (recorded.file.empty()) recorded = cluster::launched_timeline_from_environment();
  require_effects(run, {{"--trace_steps", !recorded.file.empty(), "--trace"}});
  if (job.trace_steps.empty()) return;
  recorded.steps = from_user([&] { return timeline::parse_traced_steps(job.trace_steps, "--trace_steps"); });
}

void require_possible_transport(const CLI::App& run, const cluster::LaunchOptions& options) {
  if ((options.transport == "threads") != (options.num_thread_ranks > 0) && !options.transport.empty()) {
    throw UsageError("--transport {}: ranks that are threads of one process use threads, and only they do",
                     options.transport);
  }
  if (options.transport == "mpi" && !options.scheduler.empty()) {
    throw UsageError(
        "--transport mpi: the ranks of a scheduler's job are started without mpirun; use shm, tls or gloo");
  }
  const char* const inherited = std::getenv("TESSERA_TRANSPORT");
  const std::string transport = options.transport.empty() && inherited != nullptr ? inherited : options.transport;
  require_effects(run, {{"--interface", transport == "tls" || transport == "gloo" || !options.scheduler.empty(),
                         "--transport tls or gloo, or --join"}});
}

int run_job(const CLI::App& run, JobArguments& job) {
  auto& options = job.launch;
  take_program(run, job);
  add_servers(run, options);
  hand_on_records(run, job);
  choose_folders(options);
  choose_timeline(run, job);
  if (job.timeout_s > 0) options.timeout_ms = milliseconds_of(job.timeout_s);
  options.rank_timeout_ms = milliseconds_of(job.rank_timeout_s);
  require_possible_transport(run, options);
  const std::string others = options.scheduler.empty() ? cluster::describe_other_launchers() : "";
  if (!others.empty()) std::fprintf(stderr, "tessera run: %s\n", others.c_str());
  if (!options.dashboard.place.empty()) options.dashboard.page = job_page();
  return cluster::launch(options);
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_code) {
  static JobArguments job;
  auto* run = app.add_subcommand("run", "start a program as the ranks of a job on this host");
  run->footer(
      "Examples:\n"
      "  tessera run -n 4 ./resnet50_cifar10 --data_path data      four processes, output prefixed with [rank]\n"
      "  tessera run --threads 4 ./resnet50_cifar10 ...            four ranks in one process\n"
      "  tessera run -n 4 --log_dir logs ./program                 each rank's output in logs/rank.N\n"
      "  tessera run -n 4 --report_dir why ./program               when it fails, `tessera cluster why why` says who "
      "did\n"
      "  tessera run -n 4 --dashboard 8000 ./program               its losses, ranks and log as a page, while it runs\n"
      "  tessera run -n 4 --trace job.json ./program               what all ranks did, for ui.perfetto.dev\n"
      "  tessera run --join HOST:PORT -n 4 ./program               four of the ranks of `tessera scheduler` there\n"
      "  tessera run -n 4 --max_restarts 3 ./program               what trains goes on when a rank is killed\n"
      "  tessera run -n 4 --min_ranks 2 ./program                  the same, with the ranks that are left\n"
      "  tessera run -n 4 --servers 2 ./program                    four ranks train, two keep parameters for them\n"
      "  tessera run -n 4 --record_values a ./program              then `tessera bisect a b` says where runs part\n"
      "When a rank fails, the others are ended and the command says which one, how, and its last lines; what several\n"
      "ranks say is said once. SIGINT, SIGTERM and SIGHUP end the ranks, as does an output that nobody reads any\n"
      "more; a second signal kills them. Nothing that the ranks have started outlives the job, also when this command\n"
      "is killed.\n"
      "Exit codes: 0 when all ranks ended with 0, 1 when one failed, 2 when the command line is wrong, be it this\n"
      "command's or the program's, 128 + N after signal N.");
  add_options_of_ranks(*run, job);
  run->add_option("--log_dir", job.launch.log_directory, "write rank N's output to the file rank.N in this folder");
  add_options_of_records(*run, job);
  add_options_of_reports(*run, job);
  add_options_of_transport(*run, job);
  run->add_option("program", job.launch.command, "the program and its arguments")->required();
  run->positionals_at_end();
  run->prefix_command();
  run->callback([run, &exit_code] { exit_code = run_job(*run, job); });
}

}  // namespace tessera::tools
