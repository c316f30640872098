// How the ranks of a job start and find their places. The environment variables that place a rank are read by
// the functions that end in _from_environment() and nowhere else below the front ends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/logging.h"
#include "tessera/cluster/dashboard/dashboard_page.h"
#include "tessera/cluster/ranks/context.h"
#include "tessera/cluster/ranks/survey.h"
#include "tessera/comm/wire/secret.h"
#include "tessera/timeline/timeline_options.h"

namespace tessera::cluster {

// Shared memory where all ranks are on one host, else shared memory within hosts and TLS between them, unless a kind
// is asked for: that one then goes between hosts, or on one host between all ranks. What Gloo and MPI send is not
// encrypted.
enum class TransportKind { kAutomatic, kThreads, kSharedMemory, kTls, kGloo, kMpi };
// "threads", "shm", "tls", "gloo", "mpi"; throws InvalidArgument naming the text and these names.
TransportKind parse_transport_kind(std::string_view text);

// The longest deadline of waits for a peer, 24 days.
inline constexpr int64_t kMaxTimeoutMs = 2'147'483'647;

class Password;

// Where this process finds the scheduler of its job, and by what each shows the other who it is.
struct SchedulerPlace {
  std::string address;       // TESSERA_SCHEDULER: HOST:PORT; empty: the job has none
  std::string node_id;       // TESSERA_NODE_ID: this rank's place, over its restarts; empty: one that is drawn
  uint64_t incarnation = 0;  // TESSERA_INCARNATION: set by `tessera run`, whose ranks are the nodes it has registered
  // TESSERA_TOKEN: by what the scheduler knows a process that has begun anew. TESSERA_KEPT_FILE: the memory that
  // outlives this process, which `tessera run` holds or the process before has handed on.
  uint64_t token = 0;
  std::string kept_file;
  std::string kept_for_others_file;  // TESSERA_KEPT_FOR_OTHERS_FILE: the same, for what other ranks give this one
  bool has_buddies = true;  // TESSERA_BUDDIES: what only this rank keeps is kept by a rank of another launcher, too
  // TESSERA_KEEP_STEPS: a job that recovers goes on from a step whose number these divide; 0, "auto": it keeps as often
  // as takes no more than a hundredth of the training's time.
  int64_t keep_steps = 0;
  int num_workers = 0;  // TESSERA_NUM_WORKERS: ranks of the job; 0: the scheduler knows
  // How many of this process's nodes, the first ones, keep parameters. A rank has one node: 1 where TESSERA_ROLE is
  // "server".
  int num_servers = 0;
  uint64_t program = 0;              // a number for what this launcher's ranks run; 0: it is no launcher
  int64_t join_timeout_ms = 600000;  // TESSERA_JOIN_TIMEOUT_MS: until all workers are there
  // The secret as in JobOptions. Where there is neither a secret nor certificates, it is this user's: a file of 32
  // random bytes in the folder of caches.
  comm::Secret secret;
  std::string secret_origin;  // for people: `TESSERA_SECRET_FILE, "job.secret"`
  std::string tls_config;     // TESSERA_TLS_CONFIG: where the certificates are, see tls/tls_config.h; empty: none
  std::shared_ptr<const Password> tls_password;
  bool is_password_of_environment = false;
};

// The first line of the file TESSERA_TLS_PASSWORD_FILE, else TESSERA_TLS_PASSWORD, which nobody finds in this process's
// environment afterwards; null where neither is set.
std::shared_ptr<const Password> tls_password_from_environment();

// What the environment says of the scheduler's place, which has an address only where the environment names one. Throws
// InvalidArgument naming the variable.
SchedulerPlace scheduler_place_from_environment();

// TESSERA_TIMEOUT_MS: for how long a rank waits for another one; else what JobOptions have.
int64_t timeout_from_environment();

// Where srun has started this process as one of several tasks of a step (ranks/slurm_step.h).
struct SrunPlace {
  int num_nodes = 1;
  std::string launch_address;     // SLURM_LAUNCH_NODE_IPADDR: where srun itself runs
  bool has_users_secret = false;  // the ranks prove this user's key to each other, which all nodes must have
};

struct SrunRank {
  int rank = 0;
  int local_rank = 0;  // among the tasks of its node
  int size = 0;
};

// What the environment says about this process. By default it is a job of one rank.
struct JobOptions {
  int rank = 0;          // TESSERA_RANK, else OMPI_COMM_WORLD_RANK, else SLURM_PROCID of a step of several tasks
  int size = 1;          // TESSERA_SIZE, else OMPI_COMM_WORLD_SIZE, else SLURM_STEP_NUM_TASKS
  int num_servers = 0;   // TESSERA_NUM_SERVERS: so many of the first ranks keep parameters, the others train
  int thread_ranks = 0;  // TESSERA_THREAD_RANKS: that many ranks as threads of this process; 0: it is one rank
  std::string store;     // TESSERA_STORE: where rank 0 listens, unix:NAME or tcp:HOST:PORT; empty: ask MPI
  std::string job_id;    // TESSERA_JOB_ID: peers of another job are refused; no secret
  // What ranks must know to join: read from the open descriptor TESSERA_SECRET_FD, else from the file
  // TESSERA_SECRET_FILE, which only its owner may read; `tessera run` sets both. Under mpirun, else made of what Open
  // MPI has drawn for the job; under srun on several nodes, of this user's key. A job whose TESSERA_STORE is tcp:...
  // needs one.
  comm::Secret secret;
  std::optional<SrunPlace> srun;                        // where srun says rank and size
  SchedulerPlace scheduler;                             // where it has an address, it says rank and size
  TransportKind transport = TransportKind::kAutomatic;  // TESSERA_TRANSPORT
  std::string host_id;    // TESSERA_HOST_ID: ranks of different ids do not share memory, also where they could
  std::string interface;  // TESSERA_INTERFACE: network interface at which ranks listen for each other, e.g. "eth0"
  int64_t timeout_ms =
      30000;  // TESSERA_TIMEOUT_MS, from 1 to kMaxTimeoutMs: deadline of every wait for a peer, and of the start
  int num_compute_threads = 0;   // TESSERA_NUM_THREADS, per rank; 0: the host's cores divided by its ranks
  std::string plugin_directory;  // TESSERA_PLUGIN_DIR: where the MPI plugin lies; empty: beside this program
  bool has_starter =
      false;              // mpirun or srun has started it: it ends when that has been killed (launcher/starter_watch.h)
  bool is_local = false;  // mpirun says that all ranks are on this host
  std::string report_directory;  // TESSERA_REPORT_DIR: where ranks write what they know of a failure; empty: nowhere
  // TESSERA_TRACE and TESSERA_TRACE_STEPS: the file of the job's timeline, and the steps that are recorded.
  timeline::TimelineOptions timeline = {};
  // Of a front end whose programs are scripts: where the script is now, as "train.py:80", for the report of a rank that
  // hangs. It is called by another thread, and may block.
  std::function<std::string()> script_place = {};
  // Where the script was left by an error or by its end, in the same form; "" where it was not. It does not block.
  std::function<std::string()> script_left_at = {};
  // Where a failing rank tells the launcher whose failure it is: the open descriptor TESSERA_STATUS_FD, else the pipe
  // that is open at TESSERA_STATUS_FILE; `tessera run` sets both.
  int status_fd = -1;
  // Where it tells the launcher how its training goes (ranks/training_figures.h): a pipe as above, of
  // TESSERA_FIGURES_FD and TESSERA_FIGURES_FILE, which takes writes without waiting. -1: nobody wants to know.
  int figures_fd = -1;
};

// Looks at variables that a process reads late or, alone, not at all. Throws InvalidArgument naming the one whose value
// cannot be used.
void check_variables();

// Throws InvalidArgument naming the variable whose value cannot be used: also for a transport that does not encrypt
// where there are certificates (TESSERA_TLS_CONFIG).
JobOptions job_from_environment();

// Tells the launcher that `rank` fails, and whose failure it is that made it fail. Does nothing where `status_fd` is
// -1: there is no launcher.
void report_failure(int status_fd, int rank, int origin);
// Tells the launcher that the process of `rank` has finished a step of a training, its first one.
void report_first_step(int status_fd, int rank);

// What JobOptions have of the same names, for who looks at a host and not at a job.
std::string interface_from_environment();
std::string host_id_from_environment();

// TESSERA_REPORT_DIR for a launcher; "" where the launcher is itself a rank of a job, whose folder that is.
std::string report_directory_from_environment();

// TESSERA_RECORD_VALUES, TESSERA_RECORD_STEPS, TESSERA_COMPARE_VALUES and TESSERA_ON_DIFFERENCE: what of its values a
// training records, where its model's options say nothing (docs/bisect.md).
struct ValueRecordVariables {
  std::string directory;
  std::string steps;
  std::string compare_with;
  std::string on_difference;
};
ValueRecordVariables value_records_from_environment();

// The variables, with their values, by which the same command computes something else: how GPUs compute, which ranks
// share memory, what a script reads of its place where no launcher has said that. None of them is a secret.
std::map<std::string, std::string> result_variables_from_environment();

// TESSERA_CPU_FALLBACK: whether the host computes what a device has no kernel for (session::SessionOptions). Throws
// UsageError for a value that is neither 0 nor 1.
bool cpu_fallback_from_environment();

// TESSERA_TRACE and TESSERA_TRACE_STEPS; what is left out is as TimelineOptions have it. Throws UsageError for steps
// that cannot be.
timeline::TimelineOptions timeline_from_environment();
// The same for a launcher; nothing is recorded where the launcher is itself a rank of a job, whose file that is.
timeline::TimelineOptions launched_timeline_from_environment();

// Why no folder can be there, as where a file is in its place or in that of one above it; "" where it can.
std::string why_no_folder(const std::string& directory);

// How many processes the launcher has started as ranks; 1 where there is no launcher, or where it says nonsense.
int num_processes_from_environment();
// Which of srun's tasks this process is; nothing where it is alone in its step or in none, or where another launcher,
// whose word goes before, has started it. Throws InvalidArgument naming the variable that makes no sense.
std::optional<SrunRank> srun_rank_from_environment();
// Whether the launcher has said something that a process which trains alone must not pass over: that some of its ranks
// keep parameters, or that ranks are threads of this process.
bool wants_ranks_from_environment();

// Takes this process's place in the job: meets the other ranks and makes the world group. Throws IoError when they do
// not come, InvalidArgument for a transport that these ranks cannot use, for a tcp store without a secret, and for
// options.thread_ranks, which need cluster::run. OpenMP computes with the rank's threads in the calling thread from
// then on, as many of them as run at once. With a surveyor, ranks of several hosts look first whether all of them reach
// each other: where some do not, it reports, and SurveyEnd is thrown.
std::unique_ptr<Context> join_job(const JobOptions& options, const Surveyor* surveyor = nullptr);
// join_job(job_from_environment()).
std::unique_ptr<Context> context_from_environment();

// Where what later runs can use is kept: $XDG_CACHE_HOME/tessera, else $HOME/.cache/tessera; "" where neither is set.
std::string cache_directory_from_environment();

// TESSERA_LOG_LEVEL: "debug", "info", "warning" or "error"; nothing where it is not set. Throws InvalidArgument for
// any other text.
std::optional<LogLevel> log_level_from_environment();

// What `tessera run` does.
struct LaunchOptions {
  std::vector<std::string> command;  // program and arguments; the program is sought in PATH
  int num_processes = 1;             // ranks, a process each
  int num_servers = 0;               // so many of them, the first ones, keep parameters
  std::string scheduler;             // HOST:PORT of the scheduler whose job the ranks join; empty: a job of its own
  std::string node_id;       // with a scheduler, the ranks' node ids are NODE_ID/0, ...; empty: one that is drawn
  int64_t max_restarts = 0;  // of a job of its own: so often a rank is started again and the job goes on
  // Of an elastic job of its own: with so many ranks it goes on where others are lost and not back rank_timeout_ms
  // later, or at once where max_restarts are used up. 0: the number of ranks stays.
  int min_ranks = 0;
  int64_t rank_timeout_ms = 60000;
  int num_thread_ranks = 0;  // instead: that many ranks as threads of one process
  // Rank R's output goes to the file rank.R in it, and once that takes no more, as where its disk is full, here, which
  // is said; empty: here, prefixed with "[R] ".
  std::string log_directory;
  // The ranks' reports and the launcher's go there (report/rank_report.h); empty: to the folder `report` of
  // log_directory, where there is one, else nowhere.
  std::string report_directory;
  // The file of the job's timeline, which is made of the ranks' parts when the job ends; with a scheduler, the parts
  // stay.
  timeline::TimelineOptions timeline = {};
  std::string transport;  // as TESSERA_TRANSPORT; empty: automatic
  std::string interface;
  int64_t timeout_ms = 0;       // up to kMaxTimeoutMs; 0: the ranks' default
  int num_compute_threads = 0;  // per rank; 0: the cores divided by the ranks
  DashboardOptions dashboard;   // where people look on, and by which page; none: the ranks are not asked for figures
  int64_t grace_ms = 3000;      // after a failure, until the other ranks are told to end, and again until killed
  int out_fd = 1;
  int err_fd = 2;
};

// Starts the ranks on this host and waits for them. Returns 0 when all ended with exit code 0. When one fails, ends the
// others, writes to err_fd which one failed first, how, and its error or last lines, and returns 1, or 2 where that
// rank has (kExitUsage). The errors that ranks end with are written once for all that have the same. SIGINT, SIGTERM
// and SIGHUP end the job, also while it starts, and give 128 + their number; a second one kills. No process that a rank
// has started is left behind, also when this one is killed (guard.h). The ranks read nothing from standard input.
// An output that nobody reads any more ends the job, too, with 128 + SIGPIPE; one that cannot be written, with 1. What
// is read slowly is kept up to a bound, and the ranks' writes then wait.
// With a dashboard, says at which address it is, and after the end of the job waits up to 1.5 s for who looks on.
// Where steps of the timeline are recorded on request, SIGUSR2 asks for them; else it does nothing.
// With a folder for reports, says also which rank is guilty of what (report/why.h).
// Where the job recovers, by max_restarts or as its scheduler says, a rank that fails is started again, and the others
// begin anew (recovery/recovery.h); it is reported as failed when the job does not go on. Where the job is elastic, it
// may go on without ranks of this launcher; a launcher that has none left returns 1.
// Throws InvalidArgument for fewer than 1 rank, a timeout that ranks refuse, a program that is not found and a folder
// that can be none, IoError where descriptors or processes do not suffice.
int launch(const LaunchOptions& options);

}  // namespace tessera::cluster
