#include "tessera/tools/cluster_command.h"

#include <algorithm>
#include <cstdio>

#include "tessera/engine.h"
#include "tessera/tessera.h"
#include "tessera/tools/arguments/usage.h"
#include "tessera/tools/check/check_text.h"
#include "tessera/tools/check/measure.h"
#include "tessera/tools/check/survey_facts.h"
#include "tessera/tools/dashboard/dashboard_option.h"
#include "tessera/tools/dashboard/job_page.h"

namespace tessera::tools {
namespace {

// The longest that a scheduler is asked, or waits for its workers.
constexpr double kMaxAskS = 1000;

// An empty name is looked up, too, as one of this host's that nobody has asked for.
CLI::Validator some_host() {
  return {[](const std::string& text) {
            if (text.empty()) return std::string("must be an address or a name of this host");
            const bool is_all = text == "0.0.0.0" || text == "::";
            return std::string(is_all ? "must be at one interface's address, not at all of them" : "");
          },
          ""};
}

void add_scheduler(CLI::App& app, int& exit_code) {
  static cluster::SchedulerOfJob job;
  static double timeout_s = 600;
  static double node_timeout_s = 30;
  static double rank_timeout_s = 60;
  auto* scheduler = app.add_subcommand("scheduler", "tell the ranks of a job who they are, on one host or several");
  scheduler->footer(
      "Waits for the workers of one job, gives them ranks by host and node id, and ends with the job. Workers are\n"
      "started by `tessera run --join HOST:PORT -n K PROGRAM` on each host, before or after this.\n"
      "Who joins shows the secret of the job (TESSERA_SECRET_FILE; else a key of this user in ~/.cache/tessera), or a\n"
      "certificate (TESSERA_TLS_CONFIG): docs/cluster.md.\n"
      "Examples:\n"
      "  tessera scheduler --workers 8 --port 6667\n"
      "  tessera scheduler --workers 8 --port 6667 --host 10.0.0.1 --state job.state --max_restarts 100\n"
      "  tessera scheduler --workers 4 --min_ranks 2 --max_ranks 8 --port 6667      ranks may go and come\n"
      "  tessera scheduler --workers 8 --port 6667 --dashboard 8000                 the running job as a page\n"
      "  tessera scheduler --workers 4 --spares 1 --port 6667                       a fifth takes the place of a lost "
      "one\n"
      "Exit codes: 0 when all workers have ended well, 1 when the job has failed, 128 + N after signal N.");
  scheduler->add_option("--workers", job.num_workers, "ranks of the job, on all hosts together")
      ->check(CLI::Range(1, 16384))
      ->required();
  scheduler->add_option("--port", job.port, "where workers come to; 0: any, which is said")
      ->check(CLI::Range(0, 65535))
      ->required();
  scheduler->add_option("--host", job.host, "the address of one interface of this host; other hosts need one")
      ->check(some_host())
      ->capture_default_str();
  scheduler->add_option("--timeout", timeout_s, "seconds until all workers are there")
      ->check(seconds_to_wait())
      ->capture_default_str();
  scheduler
      ->add_option("--max_restarts", job.max_restarts,
                   "so often a worker may be lost and the job goes on when it is back; 0: a loss ends the job")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}))
      ->capture_default_str();
  scheduler->add_option("--node_timeout", node_timeout_s, "seconds after which a worker that says nothing is lost")
      ->check(seconds_to_wait())
      ->capture_default_str();
  auto* min_ranks =
      scheduler
          ->add_option("--min_ranks", job.min_ranks,
                       "an elastic job: where a worker is lost and not back, it goes on with the others, so many at "
                       "least; default: it waits for all")
          ->check(CLI::Range(1, 16384));
  scheduler
      ->add_option("--max_ranks", job.max_ranks,
                   "workers that join an elastic job later are taken in when it saves, up to so many; default: "
                   "--workers")
      ->check(CLI::Range(1, 16384))
      ->needs(min_ranks);
  scheduler
      ->add_option("--rank_timeout", rank_timeout_s,
                   "seconds that an elastic job waits for a lost worker, --max_restarts times; then not at all")
      ->check(seconds_to_wait())
      ->needs(min_ranks)
      ->capture_default_str();
  scheduler
      ->add_option("--spares", job.spares,
                   "so many more workers may join and wait: where one is lost, one of them takes its rank at once, and "
                   "no restart is used up")
      ->check(CLI::Range(0, 16384))
      ->capture_default_str();
  add_dashboard_option(*scheduler, job.dashboard);
  scheduler->add_option("--state", job.state_path,
                        "a file that outlives the scheduler: started again with it, it knows its workers");
  scheduler->callback([&exit_code] {
    job.join_timeout_ms = milliseconds_of(timeout_s);
    job.node_timeout_ms = milliseconds_of(node_timeout_s);
    job.rank_timeout_ms = milliseconds_of(rank_timeout_s);
    if (!job.dashboard.place.empty()) job.dashboard.page = job_page();
    exit_code = cluster::run_scheduler_from_environment(job);
  });
}

void add_status(CLI::App& parent) {
  static std::string address;
  static bool json = false;
  static double timeout_s = 5;
  auto* status = parent.add_subcommand("status", "say who is there, in which step, who is waited for, and who is slow");
  status->add_option("scheduler", address, "HOST:PORT of the scheduler")->check(scheduler_address())->required();
  status->add_flag("--json", json, "print one JSON object");
  status->add_option("--timeout", timeout_s, "seconds until it must have answered")
      ->check(positive_seconds(kMaxAskS))
      ->capture_default_str();
  status->callback([] {
    std::fputs(cluster::scheduler_status_from_environment(address, json, milliseconds_of(timeout_s)).c_str(), stdout);
  });
}

void add_resize(CLI::App& parent) {
  static std::string address;
  static int num_ranks = 0;
  static double timeout_s = 5;
  auto* resize = parent.add_subcommand("resize", "give an elastic job another number of ranks now");
  resize->footer(
      "Of fewer ranks those with the highest numbers leave. More ranks are those that wait to be taken in: they have\n"
      "been started by `tessera run --join HOST:PORT`. The others begin anew, and train on after their newest step.\n"
      "A job that needs the ranks that it has, as one with strategies, saves its step and ends: start it again with "
      "that\n"
      "number. Without a ModelCheckpoint it would save nothing, and is not resized.\n"
      "Example:\n"
      "  tessera cluster resize 127.0.0.1:6667 2\n"
      "Exit codes: 0 when the job is being resized or ends, 1 when its scheduler refuses, with the reason, or is not "
      "there.");
  resize->add_option("scheduler", address, "HOST:PORT of the scheduler")->check(scheduler_address())->required();
  resize->add_option("num_ranks", num_ranks, "how many ranks it is to have")->check(CLI::Range(1, 16384))->required();
  resize->add_option("--timeout", timeout_s, "seconds until it must have answered")
      ->check(positive_seconds(kMaxAskS))
      ->capture_default_str();
  resize->callback([] {
    std::fputs(cluster::resize_job_from_environment(address, num_ranks, milliseconds_of(timeout_s)).c_str(), stdout);
  });
}

// The folder `directory`, or, where that is a log_dir, the one of the reports in it.
std::string folder_of_reports(const std::string& directory) {
  FileSystem& files = FileSystem::local();
  const std::string inner = directory + "/report";
  if (!files.is_directory(inner)) return directory;
  const auto is_report = [](const std::string& name) {
    return name.ends_with(".json") && (name.starts_with("rank.") || name.starts_with("launcher."));
  };
  return std::ranges::any_of(files.list(directory), is_report) ? directory : inner;
}

void add_why(CLI::App& parent) {
  static std::string directory;
  static bool json = false;
  auto* why = parent.add_subcommand("why", "say which rank is guilty when a job has failed or stands still");
  why->footer(
      "Reads the reports that the ranks of a job and its launchers have written into DIR: `tessera run --report_dir "
      "DIR`,\n"
      "`report` in the folder of --log_dir, or TESSERA_REPORT_DIR where ranks are started in another way. First comes "
      "who\n"
      "is guilty of what, and where the others waited; then a row for each rank, and the last lines of the guilty "
      "one.\n"
      "A folder without reports in which there is a folder `report`, as that of --log_dir, stands for the latter.\n"
      "A job that still runs may be asked, too: its ranks write when they wait or stand still for some seconds.\n"
      "docs/why.md says what each word means.\n"
      "Examples:\n"
      "  tessera run -n 4 --report_dir why ./program; tessera cluster why why\n"
      "  tessera cluster why logs/report --json\n"
      "Exit codes: 0 where there are reports, 1 where there are none that can be read.");
  why->add_option("directory", directory, "the folder of the reports")->required();
  why->add_flag("--json", json, "print one JSON object");
  why->callback([] {
    const cluster::JobReport report = cluster::read_job_report(FileSystem::local(), folder_of_reports(directory));
    std::fputs((json ? cluster::why_json(report) : cluster::why_text(report)).c_str(), stdout);
  });
}

void add_make_certificates(CLI::App& parent) {
  static std::string directory;
  static std::vector<std::string> nodes;
  static int days = 365;
  static std::string revoke;
  auto* make = parent.add_subcommand("make-certificates", "make an authority and certificates with roles, for tests");
  make->footer(
      "Makes ca.crt, ca.key, crl.pem, server.p12 (the scheduler), client.p12 (any worker), observer.p12 (`tessera "
      "cluster\n"
      "status`), config.json (for TESSERA_TLS_CONFIG) and NODE.p12 for each --nodes. The files' password is the first\n"
      "line of the file TESSERA_TLS_PASSWORD_FILE, or TESSERA_TLS_PASSWORD; it is no option, as everybody sees those.\n"
      "All files are there, or none. Those who make or revoke in one folder at once take turns.\n"
      "Examples:\n"
      "  TESSERA_TLS_PASSWORD_FILE=password tessera cluster make-certificates tls --nodes worker_0 worker_1\n"
      "  TESSERA_TLS_PASSWORD_FILE=password tessera cluster make-certificates tls --revoke worker_1");
  make->add_option("directory", directory, "where they go; made where it is missing")->required();
  auto* named = make->add_option("--nodes", nodes, "node ids that get certificates of their own");
  auto* hold =
      make->add_option("--days", days, "how long they hold")->check(CLI::Range(1, 3650))->capture_default_str();
  make->add_option("--revoke", revoke, "instead: put the certificate of this name on the list crl.pem")
      ->excludes(named)
      ->excludes(hold);
  make->callback(
      [] { std::fputs(cluster::make_certificates_from_environment(directory, nodes, days, revoke).c_str(), stdout); });
}

// A process that a launcher has started as a rank asks the other ranks; by itself it tells of this host.
void add_check(CLI::App& parent, int& exit_code) {
  static MeasureOptions options{.version = TESSERA_VERSION};
  static std::string rank_table;
  static int64_t mib = 16;
  static bool json = false;
  auto* check =
      parent.add_subcommand("check", "look whether the hosts of a job are fit to train together, before they do");
  check->footer(
      "Is started as a training would be, by any launcher. Compares versions, CPUs, cores, interfaces, MTU, clocks "
      "and\n"
      "names of the hosts, and measures latency and bandwidth between each two of them. Where some do not reach each\n"
      "other, it says which, and why.\n"
      "Examples:\n"
      "  tessera run -n 4 tessera cluster check\n"
      "  tessera run --join 10.0.0.1:6667 -n 4 tessera cluster check          # on each host, beside a scheduler\n"
      "  mpirun --hostfile hosts -n 8 tessera cluster check --rank_table rank_table_8pcs.json\n"
      "Exit codes: 0 where nothing keeps the hosts from training, 1 for a fault, 2 for a wrong command line.");
  check->add_option("--rank_table", rank_table,
                    "a rank table that the job is to go by: its servers are compared with the hosts");
  check->add_option("--mib", mib, "MiB of a message whose time is taken")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  check->add_flag("--json", json, "print one JSON object");
  check->callback([&exit_code] {
    options.bytes = mib << 20;
    const std::string table = rank_table.empty() ? "" : read_settings(FileSystem::local(), rank_table, "rank table");
    std::string program = "tessera";
    char* arguments[] = {program.data(), nullptr};
    const auto report = [&](const ClusterFacts& facts, int rank) {
      const auto findings = find_faults(facts, table, rank_table);
      const bool is_fit =
          std::ranges::none_of(findings, [](const Finding& one) { return one.severity == Severity::kFault; });
      if (rank == 0) std::fputs((json ? check_json : check_text)(facts, findings).c_str(), stdout);
      std::fflush(stdout);
      return is_fit ? cluster::kExitSuccess : cluster::kExitFailure;
    };
    const cluster::Surveyor surveyor{
        .words = [](int rank) { return words_of_host(rank, options); },
        .report = [&](const cluster::Survey& survey) { return report(facts_of_survey(survey), survey.rank); }};
    exit_code = cluster::run_survey(1, arguments, surveyor, [&](cluster::Context& context) {
      return report(measure_cluster(context, options), context.rank());
    });
  });
}

}  // namespace

void add_cluster_commands(CLI::App& app, int& exit_code) {
  add_scheduler(app, exit_code);
  auto* cluster = app.add_subcommand(
      "cluster", "look at a job's scheduler and hosts, resize it, say why it failed, make certificates");
  cluster->require_subcommand(1);
  add_status(*cluster);
  add_resize(*cluster);
  add_check(*cluster, exit_code);
  add_why(*cluster);
  add_make_certificates(*cluster);
}

}  // namespace tessera::tools
