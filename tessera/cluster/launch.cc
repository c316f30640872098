#include "tessera/cluster/launch.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/base/files/random_id.h"
#include "tessera/base/logging.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"
#include "tessera/base/usage_error.h"
#include "tessera/cluster/ranks/environment.h"
#include "tessera/cluster/ranks/slurm_step.h"
#include "tessera/cluster/ranks/variable_names.h"
#include "tessera/cluster/rendezvous/host_port.h"
#include "tessera/cluster/rendezvous/messages/frame.h"
#include "tessera/cluster/tls/certificates.h"

namespace tessera::cluster {
namespace {

std::string read_text(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

int64_t read_number(const char* name, int64_t fallback, int64_t at_least, int64_t at_most) {
  const std::string text = read_text(name);
  if (text.empty()) return fallback;
  const int64_t value = from_user([&] { return parse_int(text, name); });
  if (value < at_least || value > at_most) {
    throw UsageError("{} must be from {} to {}, got {}", name, at_least, at_most, value);
  }
  return value;
}

std::string role_from_environment() {
  std::string role = read_text("TESSERA_ROLE");
  if (!role.empty() && role != "server" && role != "worker") {
    throw UsageError("TESSERA_ROLE must be server or worker, got \"{}\"", printable(role));
  }
  return role;
}

// More than any host has cores; starting them must not take minutes.
constexpr int64_t kMostThreads = 4096;
constexpr int64_t kMaxInt = std::numeric_limits<int>::max();

// The number that OMP_NUM_THREADS says, of a list, which has one for each nesting level, the first. 0 where it says
// none: OpenMP passes over that, too.
int threads_of_openmp() {
  const std::string text = read_text("OMP_NUM_THREADS");
  const std::string first = text.substr(0, text.find(','));
  const size_t begin = first.find_first_not_of(' ');
  if (begin == std::string::npos) return 0;
  const std::string number = first.substr(begin, first.find_last_not_of(' ') + 1 - begin);
  if (number.size() > 9 || number.find_first_not_of("0123456789") != std::string::npos) return 0;
  return static_cast<int>(std::min<int64_t>(std::stol(number), kMostThreads));
}

// Whether the descriptor is the launcher's pipe. A program between it and the rank may have closed that and opened
// something of its own, which gets the number. `path` is the launcher's descriptor; where this process cannot see it,
// being a pipe has to do.
bool is_launchers_pipe(int fd, const std::string& path) {
  struct stat open_file {
  }, of_launcher{};
  if (fstat(fd, &open_file) != 0 || !S_ISFIFO(open_file.st_mode)) return false;
  if (path.empty() || stat(path.c_str(), &of_launcher) != 0) return true;
  return open_file.st_dev == of_launcher.st_dev && open_file.st_ino == of_launcher.st_ino;
}

// A pipe to the launcher, by the variables that have its descriptor and its path; -1 where there is none.
int open_pipe_to_launcher(const char* descriptor, const char* file) {
  const int fd = static_cast<int>(read_number(descriptor, -1, 0, kMaxInt));
  const std::string path = read_text(file);
  if (fd >= 0 && is_launchers_pipe(fd, path)) {
    // The programs that this one starts are no ranks and must not keep the launcher's pipe open.
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
  }
  struct stat status {};
  const bool is_pipe = !path.empty() && stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
  return is_pipe ? open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;
}

// Where both are said, as `tessera run` does, the descriptor counts if it is memory that nobody can change, as the
// launcher's is: a program between it and the rank may have closed that and opened a file of its own.
comm::Secret read_secret(std::string* origin = nullptr) {
  const std::string path = read_text("TESSERA_SECRET_FILE");
  const int fd = static_cast<int>(read_number("TESSERA_SECRET_FD", -1, 0, kMaxInt));
  if (fd >= 0 && (path.empty() || fcntl(fd, F_GET_SEALS) == kSecretSeals)) {
    comm::Secret secret = comm::Secret::from_descriptor(fd, fmt::format("TESSERA_SECRET_FD={}", fd));
    fcntl(fd, F_SETFD, FD_CLOEXEC);  // the programs that this one starts are no ranks
    if (origin != nullptr) *origin = fmt::format("TESSERA_SECRET_FD={}", fd);
    return secret;
  }
  if (origin != nullptr && !path.empty()) *origin = fmt::format("TESSERA_SECRET_FILE, \"{}\"", printable(path));
  return path.empty() ? comm::Secret() : comm::Secret::from_file(path, "TESSERA_SECRET_FILE");
}

// Random bytes that this user's processes share: of a file that nobody else reads, made where there is none. By hard
// links one of those that make it at a time is the first.
comm::Secret secret_of_user() {
  const std::string cache = cache_directory_from_environment();
  if (cache.empty()) {
    throw UsageError("neither HOME nor XDG_CACHE_HOME is set: name the job's secret by TESSERA_SECRET_FILE");
  }
  const std::string path = join_path(cache, "meeting_key");
  FileSystem& files = FileSystem::local();
  if (!files.exists(path)) {
    files.create_directories(cache);
    const std::string own = fmt::format("{}.{}", path, random_id());
    files.write_atomically(own, comm::random_bytes(32), 0600);
    [[maybe_unused]] const int linked = link(own.c_str(), path.c_str());
    files.remove(own);
  }
  return comm::Secret::from_file(path, "this user's key");
}

// The user's key for what nobody else is to guess; none, which everybody can, where there is no place for one.
comm::Secret key_for_names() {
  if (cache_directory_from_environment().empty()) return {};
  try {
    return secret_of_user();
  } catch (const IoError&) {
    return {};
  }
}

// The process is a rank that `tessera run` started, or something that sets the same variables.
void read_own_place(JobOptions& options) {
  options.size = static_cast<int>(read_number("TESSERA_SIZE", 1, 1, kMaxInt));
  options.rank = static_cast<int>(read_number("TESSERA_RANK", 0, 0, options.size - 1));
  if (options.size > 1 && options.store.empty()) {
    throw UsageError(
        "TESSERA_STORE is not set: rank {} of {} must know where rank 0 listens, unix:NAME or "
        "tcp:HOST:PORT",
        options.rank, options.size);
  }
}

// The process is a rank that mpirun started.
void read_mpirun_place(JobOptions& options) {
  options.has_starter = true;
  options.size = static_cast<int>(read_number("OMPI_COMM_WORLD_SIZE", 1, 1, kMaxInt));
  options.rank = static_cast<int>(read_number("OMPI_COMM_WORLD_RANK", 0, 0, options.size - 1));
  const int64_t local_size = read_number("OMPI_COMM_WORLD_LOCAL_SIZE", 0, 0, kMaxInt);
  options.is_local = local_size == options.size;
  const std::string drawn = read_text("OMPI_MCA_orte_precondition_transports");
  const std::string space = read_text("PMIX_NAMESPACE");
  // Open MPI draws 128 bits for each job. They stand in the environment only, and must not be seen in what is made of
  // them: names of sockets, which everybody may list, and job ids, which checkpoints hold.
  const comm::Secret base = drawn.size() < 32 ? comm::Secret() : comm::Secret(drawn, "mpirun's key");
  if (!options.secret && base) options.secret = base.derive("mpirun's job");
  const auto public_name = [&](std::string_view use) {
    return comm::hex(base.hash({use, space, std::to_string(geteuid())})).substr(0, 32);
  };
  if (options.job_id.empty()) options.job_id = fmt::format("mpirun {}", public_name("id"));
  // On one host all ranks know a name that no other job has; across hosts only MPI itself can introduce them.
  if (options.store.empty() && options.is_local && !(space.empty() && drawn.empty())) {
    options.store = fmt::format("unix:tessera-{}-{}", geteuid(), public_name("store"));
  }
}

SlurmVariables slurm_variables() {
  const auto either = [](std::string text, const std::string& other) { return text.empty() ? other : text; };
  return {.procid = read_text("SLURM_PROCID"),
          .num_tasks = either(read_text("SLURM_STEP_NUM_TASKS"), read_text("SLURM_NTASKS")),
          .localid = read_text("SLURM_LOCALID"),
          .tasks_per_node = read_text("SLURM_STEP_TASKS_PER_NODE"),
          .node_list = either(read_text("SLURM_STEP_NODELIST"), read_text("SLURM_JOB_NODELIST")),
          .job_id = read_text("SLURM_JOB_ID"),
          .step_id = read_text("SLURM_STEP_ID"),
          .cluster_name = read_text("SLURM_CLUSTER_NAME"),
          .restart_count = read_text("SLURM_RESTART_COUNT"),
          .own_node = read_text("SLURMD_NODENAME")};
}

// The task of srun that this process is beside others. What another launcher says goes before: it may itself have been
// started by srun, as mpirun's daemons are. So are the daemons of MPICH and Intel MPI, and all processes of a node have
// the variables of its daemon: they are told by PMI_SIZE, which where srun itself has set it is the number of its
// tasks.
std::optional<SlurmStep> srun_step() {
  for (const char* name : {"TESSERA_SCHEDULER", "TESSERA_SIZE", "OMPI_COMM_WORLD_SIZE"}) {
    if (!read_text(name).empty()) return std::nullopt;
  }
  auto step = from_user([] { return parse_slurm_step(slurm_variables()); });
  const std::string of_mpi = read_text("PMI_SIZE");
  if (step && !of_mpi.empty() && of_mpi != std::to_string(step->size)) {
    throw UsageError(
        "an mpiexec that Tessera does not know has started {} processes (PMI_SIZE) in a step of srun that has {} "
        "tasks: "
        "start them by srun itself, by Open MPI's mpirun, or by tessera run on each node",
        printable(of_mpi), step->size);
  }
  return step;
}

// Ports for ranks of several nodes, where none is given.
constexpr int kFirstPort = 20000;
constexpr int kNumPorts = 10000;

// One that the tasks of a step agree on, and other steps seldom have.
int port_of_step(const SlurmStep& step) {
  const std::string hash = comm::Secret().hash({"srun's port", step.name});
  return kFirstPort + (static_cast<unsigned char>(hash[0]) * 256 + static_cast<unsigned char>(hash[1])) % kNumPorts;
}

// The process is a task that srun started. The ranks of one node meet at a local socket, where the kernel says who they
// are; its name is one that nobody else can guess, where the user has a place for a key. On several nodes they meet at
// the first one, and prove the key, which is that of the home directory that the nodes share.
void read_srun_place(JobOptions& options, const SlurmStep& step) {
  options.has_starter = true;
  options.rank = step.rank;
  options.size = step.size;
  options.srun = SrunPlace{.num_nodes = static_cast<int>(step.nodes.size()),
                           .launch_address = read_text("SLURM_LAUNCH_NODE_IPADDR")};
  if (options.job_id.empty()) options.job_id = "srun " + step.name;
  if (step.nodes.size() == 1) {
    if (!options.store.empty()) return;
    const std::string hash = key_for_names().hash({"srun's store", step.name, std::to_string(geteuid())});
    options.store = fmt::format("unix:tessera-{}-{}", geteuid(), comm::hex(hash).substr(0, 32));
    return;
  }
  if (!options.secret) {
    options.secret = secret_of_user().derive("srun's step " + step.name);
    options.srun->has_users_secret = true;
  }
  if (!options.store.empty()) return;
  if (step.rank == 0 && !step.own_node.empty() && step.own_node != step.nodes.front()) {
    throw UsageError(
        "rank 0 is on node {}, but SLURM_STEP_NODELIST begins with {}, where the others look for it: set "
        "TESSERA_STORE=tcp:{}:PORT, a free port there, on all ranks",
        step.own_node, step.nodes.front(), step.own_node);
  }
  const int64_t port = read_number("TESSERA_PORT", port_of_step(step), 1, 65535);
  options.store = fmt::format("tcp:{}:{}", step.nodes.front(), port);
}

}  // namespace

TransportKind parse_transport_kind(std::string_view text) {
  if (text == "threads") return TransportKind::kThreads;
  if (text == "shm") return TransportKind::kSharedMemory;
  if (text == "tls") return TransportKind::kTls;
  if (text == "gloo") return TransportKind::kGloo;
  if (text == "mpi") return TransportKind::kMpi;
  throw InvalidArgument("unknown transport \"{}\"; the known ones are threads, shm, tls, gloo, mpi", text);
}

std::shared_ptr<const Password> tls_password_from_environment() {
  const std::string path = read_text("TESSERA_TLS_PASSWORD_FILE");
  if (!path.empty()) return std::make_shared<Password>(Password::from_file(path, "TESSERA_TLS_PASSWORD_FILE"));
  char* const text = std::getenv("TESSERA_TLS_PASSWORD");
  if (text == nullptr) return nullptr;
  auto password = std::make_shared<Password>(text);
  OPENSSL_cleanse(text, std::strlen(text));
  unsetenv("TESSERA_TLS_PASSWORD");
  return password;
}

SchedulerPlace scheduler_place_from_environment() {
  SchedulerPlace place;
  place.address = read_text("TESSERA_SCHEDULER");
  if (!place.address.empty()) {
    from_user([&] { return rendezvous::parse_host_port(place.address, "TESSERA_SCHEDULER"); });
  }
  place.node_id = read_text("TESSERA_NODE_ID");
  if (!place.node_id.empty()) {
    from_user([&] { rendezvous::check_node_id(place.node_id, "TESSERA_NODE_ID", rendezvous::kMaxNodeId); });
  }
  const std::string incarnation = read_text("TESSERA_INCARNATION");
  if (!incarnation.empty()) {
    place.incarnation = from_user([&] { return static_cast<uint64_t>(parse_int(incarnation, "TESSERA_INCARNATION")); });
  }
  const std::string token = read_text("TESSERA_TOKEN");
  if (!token.empty()) {
    place.token = from_user([&] { return static_cast<uint64_t>(parse_int(token, "TESSERA_TOKEN")); });
  }
  place.kept_file = read_text("TESSERA_KEPT_FILE");
  place.kept_for_others_file = read_text("TESSERA_KEPT_FOR_OTHERS_FILE");
  place.has_buddies = read_number("TESSERA_BUDDIES", 1, 0, 1) == 1;
  if (read_text("TESSERA_KEEP_STEPS") != "auto") {
    place.keep_steps = read_number("TESSERA_KEEP_STEPS", place.keep_steps, 1, kMaxInt);
  }
  place.num_workers = static_cast<int>(read_number("TESSERA_NUM_WORKERS", 0, 1, kMaxInt));
  place.num_servers = role_from_environment() == "server" ? 1 : 0;
  place.join_timeout_ms = read_number("TESSERA_JOIN_TIMEOUT_MS", place.join_timeout_ms, 1, kMaxTimeoutMs);
  place.tls_config = read_text("TESSERA_TLS_CONFIG");
  place.tls_password = tls_password_from_environment();
  place.is_password_of_environment = place.tls_password && read_text("TESSERA_TLS_PASSWORD_FILE").empty();
  place.secret = read_secret(&place.secret_origin);
  if (!place.secret && place.tls_config.empty()) {
    place.secret = secret_of_user();
    place.secret_origin = fmt::format("this user's key, \"{}\", as TESSERA_SECRET_FILE is not set",
                                      printable(join_path(cache_directory_from_environment(), "meeting_key")));
  }
  return place;
}

int64_t timeout_from_environment() {
  return read_number("TESSERA_TIMEOUT_MS", JobOptions().timeout_ms, 1, kMaxTimeoutMs);
}

void check_variables() {
  role_from_environment();
  read_number("TESSERA_CUDA_TF32", 0, 0, 1);
}

JobOptions job_from_environment() {
  check_variables();
  JobOptions options;
  options.timeout_ms = timeout_from_environment();
  options.num_compute_threads =
      static_cast<int>(read_number("TESSERA_NUM_THREADS", threads_of_openmp(), 1, kMostThreads));
  options.num_servers = static_cast<int>(read_number("TESSERA_NUM_SERVERS", 0, 0, kMaxInt));
  options.thread_ranks = static_cast<int>(read_number("TESSERA_THREAD_RANKS", 0, 1, kMaxInt));
  options.status_fd = open_pipe_to_launcher("TESSERA_STATUS_FD", "TESSERA_STATUS_FILE");
  options.figures_fd = open_pipe_to_launcher("TESSERA_FIGURES_FD", "TESSERA_FIGURES_FILE");
  options.secret = read_secret();
  options.store = read_text("TESSERA_STORE");
  options.job_id = read_text("TESSERA_JOB_ID");
  options.host_id = host_id_from_environment();
  options.interface = interface_from_environment();
  options.plugin_directory = read_text("TESSERA_PLUGIN_DIR");
  options.report_directory = read_text("TESSERA_REPORT_DIR");
  options.timeline = timeline_from_environment();
  const std::string transport = read_text("TESSERA_TRANSPORT");
  if (!transport.empty()) {
    try {
      options.transport = parse_transport_kind(transport);
    } catch (const InvalidArgument& error) {
      throw UsageError("TESSERA_TRANSPORT: {}", error.what());
    }
  }
  const bool is_plain = options.transport == TransportKind::kGloo || options.transport == TransportKind::kMpi;
  if (is_plain && !read_text("TESSERA_TLS_CONFIG").empty()) {
    throw UsageError(
        "TESSERA_TRANSPORT={}: what it sends is not encrypted, and TESSERA_TLS_CONFIG asks for TLS; leave the "
        "transport out, or say tls",
        transport);
  }
  if (options.thread_ranks > 0) {
    if (options.transport != TransportKind::kAutomatic && options.transport != TransportKind::kThreads) {
      throw UsageError("TESSERA_TRANSPORT={}: ranks that are threads of one process use threads", transport);
    }
    if (const std::string processes = read_text("OMPI_COMM_WORLD_SIZE"); !processes.empty() && processes != "1") {
      throw UsageError(
          "TESSERA_THREAD_RANKS={} under mpirun with {} processes: ranks are either threads of one "
          "process or processes",
          options.thread_ranks, processes);
    }
    if (const auto step = srun_step()) {
      throw UsageError(
          "TESSERA_THREAD_RANKS={} in each of srun's {} tasks: ranks are either threads of one process or processes; "
          "srun -n 1 starts one process",
          options.thread_ranks, step->size);
    }
    return options;
  }
  if (!read_text("TESSERA_SCHEDULER").empty()) {
    options.scheduler = scheduler_place_from_environment();
  } else if (!read_text("TESSERA_SIZE").empty()) {
    read_own_place(options);
  } else if (!read_text("OMPI_COMM_WORLD_SIZE").empty()) {
    read_mpirun_place(options);
  } else if (const auto step = srun_step()) {
    read_srun_place(options, *step);
  } else if (read_number("TESSERA_RANK", 0, 0, kMaxInt) > 0) {
    throw UsageError("TESSERA_RANK is {}, but TESSERA_SIZE is not set: a rank must know how many ranks there are",
                     read_text("TESSERA_RANK"));
  }
  if (options.num_servers > 0 && options.scheduler.address.empty() && options.size == 1) {
    throw UsageError(
        "TESSERA_NUM_SERVERS is {}, but this process is the only rank, and one that is no server has to train; "
        "tessera run -n N --servers {} starts more",
        options.num_servers, options.num_servers);
  }
  return options;
}

std::string interface_from_environment() { return read_text("TESSERA_INTERFACE"); }
std::string host_id_from_environment() { return read_text("TESSERA_HOST_ID"); }

std::string report_directory_from_environment() {
  const bool is_rank = !read_text("TESSERA_STATUS_FILE").empty();
  return is_rank ? "" : read_text("TESSERA_REPORT_DIR");
}

ValueRecordVariables value_records_from_environment() {
  return {.directory = read_text("TESSERA_RECORD_VALUES"),
          .steps = read_text("TESSERA_RECORD_STEPS"),
          .compare_with = read_text("TESSERA_COMPARE_VALUES"),
          .on_difference = read_text("TESSERA_ON_DIFFERENCE")};
}

std::map<std::string, std::string> result_variables_from_environment() {
  std::map<std::string, std::string> variables = {
      {"GRAPH_OP_RUN", read_text("GRAPH_OP_RUN")},
      {"TESSERA_CPU_FALLBACK", read_text("TESSERA_CPU_FALLBACK")},
      {"TESSERA_CUDA_LIBRARIES", read_text("TESSERA_CUDA_LIBRARIES")},
      {"TESSERA_CUDA_MEASURE", read_text("TESSERA_CUDA_MEASURE")},
      {"TESSERA_CUDA_TF32", read_text("TESSERA_CUDA_TF32")},
      {"TESSERA_HOST_ID", read_text("TESSERA_HOST_ID")},
      {"TESSERA_LITERAL_GRADIENTS_MEAN", read_text("TESSERA_LITERAL_GRADIENTS_MEAN")},
  };
  if (read_text("TESSERA_STATUS_FILE").empty()) {  // there is no launcher, which says these anew
    variables["DEVICE_ID"] = read_text("DEVICE_ID");
    variables["RANK_ID"] = read_text("RANK_ID");
    variables["RANK_SIZE"] = read_text("RANK_SIZE");
  }
  std::erase_if(variables, [](const auto& variable) { return variable.second.empty(); });
  return variables;
}

bool cpu_fallback_from_environment() { return read_number("TESSERA_CPU_FALLBACK", 0, 0, 1) != 0; }

timeline::TimelineOptions timeline_from_environment() {
  // A process that begins anew has spans of its own; those that are there are of the same job.
  timeline::TimelineOptions options{.file = read_text("TESSERA_TRACE"), .keeps_earlier = true};
  const std::string steps = read_text("TESSERA_TRACE_STEPS");
  options.steps = from_user([&] { return timeline::parse_traced_steps(steps, "TESSERA_TRACE_STEPS"); });
  return options;
}

timeline::TimelineOptions launched_timeline_from_environment() {
  const bool is_rank = !read_text("TESSERA_STATUS_FILE").empty();
  return is_rank ? timeline::TimelineOptions{} : timeline_from_environment();
}

std::string why_no_folder(const std::string& directory) {
  std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  while (true) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    // What cannot be looked at is said when the folder is made.
    if (std::filesystem::is_directory(status) || status.type() == std::filesystem::file_type::unknown) return "";
    if (std::filesystem::exists(status)) return fmt::format("{} is there, and is no folder", path.string());
    if (!path.has_relative_path()) return "";
    path = path.parent_path();
  }
}

int num_processes_from_environment() {
  try {
    const auto step = srun_step();
    const int64_t of_srun = step ? step->size : 1;
    const int64_t of_mpirun = read_number("OMPI_COMM_WORLD_SIZE", of_srun, 1, kMaxInt);
    return static_cast<int>(read_number("TESSERA_SIZE", of_mpirun, 1, kMaxInt));
  } catch (const InvalidArgument&) {
    return 1;
  }
}

std::optional<SrunRank> srun_rank_from_environment() {
  const auto step = srun_step();
  if (!step) return std::nullopt;
  return SrunRank{.rank = step->rank, .local_rank = step->local_rank, .size = step->size};
}

bool wants_ranks_from_environment() {
  return read_number("TESSERA_NUM_SERVERS", 0, 0, kMaxInt) > 0 ||
         read_number("TESSERA_THREAD_RANKS", 0, 1, kMaxInt) > 1;
}

std::string cache_directory_from_environment() {
  const std::string cache = read_text("XDG_CACHE_HOME");
  if (!cache.empty()) return join_path(cache, "tessera");
  const std::string home = read_text("HOME");
  return home.empty() ? "" : join_path(home, ".cache/tessera");
}

std::optional<LogLevel> log_level_from_environment() {
  const std::string text = read_text("TESSERA_LOG_LEVEL");
  if (text.empty()) return std::nullopt;
  if (text == "debug") return LogLevel::kDebug;
  if (text == "info") return LogLevel::kInfo;
  if (text == "warning") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  throw UsageError("TESSERA_LOG_LEVEL must be debug, info, warning or error, got \"{}\"", text);
}

std::unique_ptr<Context> context_from_environment() { return join_job(job_from_environment()); }

void report_failure(int status_fd, int rank, int origin) {
  if (status_fd < 0) return;
  const std::string line = fmt::format("{} {}\n", rank, origin);
  [[maybe_unused]] const ssize_t written = write(status_fd, line.data(), line.size());
}

void report_first_step(int status_fd, int rank) { report_failure(status_fd, rank, -1); }

void warn_of_unknown_variables() {
  // A launcher has said it, or the process that this one goes on from.
  for (const char* name : {"TESSERA_STATUS_FD", "TESSERA_STATUS_FILE", "TESSERA_TOKEN"}) {
    if (!read_text(name).empty()) return;
  }
  for (const char* name : {"TESSERA_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const std::string rank = read_text(name); !rank.empty() && rank != "0") return;
  }
  static bool has_warned = false;
  if (std::exchange(has_warned, true)) return;
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    names.emplace_back(text.substr(0, text.find('=')));
  }
  const std::string unknown = describe_unknown_variables(names);
  if (unknown.empty()) return;
  log_warning(
      "the environment has variables that Tessera does not know, and that have no effect: {}; "
      "docs/environment.md lists those that it reads",
      unknown);
}

void warn_if_alone_among_tasks() {
  for (const char* name : {"TESSERA_SCHEDULER", "TESSERA_SIZE", "TESSERA_THREAD_RANKS", "OMPI_COMM_WORLD_SIZE"}) {
    if (!read_text(name).empty()) return;
  }
  static bool has_warned = false;
  if (std::exchange(has_warned, true)) return;
  if (const int tasks = tasks_of_shell(slurm_variables()); tasks > 1) {
    log_warning(
        "this program has been started once, without srun, in a job of Slurm that has {} tasks: it is one rank "
        "alone; srun starts one for each task: srun PROGRAM",
        tasks);
    return;
  }
  if (num_processes_from_environment() > 1) return;
  const auto are_several = [](const std::string& size) { return !size.empty() && size != "1"; };
  if (const std::string size = read_text("PMI_SIZE"); are_several(size) && read_text("PMI_RANK") == "0") {
    log_warning(
        "an mpiexec that Tessera does not know has started {} processes (PMI_SIZE), each of which is one rank "
        "alone: start them by Open MPI's mpirun, by srun or by tessera run -n {}",
        printable(size), printable(size));
    return;
  }
  const bool is_of_torch = !read_text("TORCHELASTIC_RUN_ID").empty() || !read_text("MASTER_ADDR").empty();
  if (const std::string size = read_text("WORLD_SIZE"); is_of_torch && are_several(size) && read_text("RANK") == "0") {
    log_warning(
        "the environment says, as torchrun does, that this is one of {} processes (WORLD_SIZE), but Tessera does not "
        "read that: each of them is one rank alone, and trains by itself; start them by tessera run -n {} PROGRAM, by "
        "Open MPI's mpirun or by srun",
        printable(size), printable(size));
  }
}

std::string describe_other_launchers() {
  const char* starter = "mpirun";
  int size = 0;
  int rank = 0;
  try {
    if (!read_text("TESSERA_SIZE").empty()) return "";
    if (const auto step = srun_step()) {
      starter = "srun";
      size = step->size;
      rank = step->rank;
    } else {
      size = static_cast<int>(read_number("OMPI_COMM_WORLD_SIZE", 1, 1, kMaxInt));
      rank = static_cast<int>(read_number("OMPI_COMM_WORLD_RANK", 0, 0, kMaxInt));
    }
  } catch (const InvalidArgument&) {
    return "";  // of a job that this launcher is no part of
  }
  if (size < 2 || rank != 0) return "";
  return fmt::format(
      "{} has started {} launchers, and each starts a job of its own; for one job let {} start the program "
      "itself, or give all launchers the scheduler that they meet at (--join)",
      starter, size, starter);
}

// Variables of a job that this process is a rank of, which are nothing of a new job's.
constexpr auto kOfOwnJob = std::to_array<std::string_view>({"TESSERA_RANK",        "TESSERA_RANK_PROCESS",
                                                            "TESSERA_SIZE",        "TESSERA_THREAD_RANKS",
                                                            "TESSERA_STORE",       "TESSERA_JOB_ID",
                                                            "TESSERA_STATUS_FD",   "TESSERA_STATUS_FILE",
                                                            "TESSERA_FIGURES_FD",  "TESSERA_FIGURES_FILE",
                                                            "TESSERA_SECRET_FD",   "TESSERA_SECRET_FILE",
                                                            "TESSERA_SCHEDULER",   "TESSERA_NODE_ID",
                                                            "TESSERA_ROLE",        "TESSERA_NUM_SERVERS",
                                                            "TESSERA_INCARNATION", "TESSERA_TOKEN",
                                                            "TESSERA_KEPT_FILE",   "TESSERA_KEPT_FOR_OTHERS_FILE",
                                                            "TESSERA_NUM_WORKERS", "TESSERA_TLS_PASSWORD_FILE",
                                                            "TESSERA_REPORT_DIR",  "TESSERA_TRACE",
                                                            "TESSERA_TRACE_STEPS"});

std::vector<std::string> child_environment(const std::map<std::string, std::string>& settings,
                                           const std::map<std::string, std::string>& defaults) {
  std::map<std::string, std::string> values = defaults;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (std::ranges::find(kOfOwnJob, name) != kOfOwnJob.end()) continue;
    values[std::string(name)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : settings) values[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : values) entries.push_back(fmt::format("{}={}", name, value));
  return entries;
}

std::string find_program(const std::string& name) {
  const auto is_program = [](const std::string& path) {
    return access(path.c_str(), X_OK) == 0 && !FileSystem::local().is_directory(path);
  };
  const auto refuse_script = [&] {
    if (!name.ends_with(".py") || access(name.c_str(), F_OK) != 0) return;
    throw InvalidArgument("\"{}\" is a script of Python; start it as: python {}", name, name);
  };
  if (name.find('/') != std::string::npos) {
    if (is_program(name)) return name;
    refuse_script();
    throw InvalidArgument(
        "program \"{}\" {}", name,
        access(name.c_str(), F_OK) == 0 ? "is not executable; chmod +x makes it one" : "does not exist");
  }
  const std::string path = read_text("PATH");
  for (const std::string_view directory : split(path, ':')) {
    std::string candidate = join_path(directory.empty() ? "." : std::string(directory), name);
    if (is_program(candidate)) return candidate;
  }
  refuse_script();
  const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
  throw InvalidArgument("program \"{}\" is not in PATH{}", name,
                        is_program("./" + name) ? fmt::format("; the one of this directory is ./{}", name)
                        : is_number             ? fmt::format("; -n {} is a number of ranks", name)
                                                : "");
}

}  // namespace tessera::cluster
