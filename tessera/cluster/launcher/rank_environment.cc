#include "tessera/cluster/launcher/rank_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "tessera/cluster/ranks/environment.h"
#include "tessera/cluster/ranks/rank_context.h"

namespace tessera::cluster {
namespace {

using Settings = std::map<std::string, std::string>;

// By which a rank that has lost the one that it inherited opens it again.
std::string own_descriptor(const Socket& socket) { return fmt::format("/proc/{}/fd/{}", getpid(), socket.fd()); }

// Where it meets the others.
void add_meeting(const RankEnvironment& rank, Settings& settings) {
  if (rank.secret) {
    settings["TESSERA_SECRET_FD"] = std::to_string(rank.secret.fd());
    settings["TESSERA_SECRET_FILE"] = own_descriptor(rank.secret);
  }
  if (rank.scheduler.empty()) {
    settings["TESSERA_STORE"] = fmt::format("unix:tessera-{}-{}", geteuid(), rank.job_id);
    return;
  }
  settings["TESSERA_SCHEDULER"] = rank.scheduler;
  if (rank.kept) settings["TESSERA_KEPT_FILE"] = own_descriptor(rank.kept);
  if (rank.kept_for_others) settings["TESSERA_KEPT_FOR_OTHERS_FILE"] = own_descriptor(rank.kept_for_others);
  settings["TESSERA_NODE_ID"] = rank.node_id;
  settings["TESSERA_INCARNATION"] = std::to_string(rank.incarnation);
  if (rank.password) settings["TESSERA_TLS_PASSWORD_FILE"] = own_descriptor(rank.password);
}

}  // namespace

std::vector<std::string> entries_of(const RankEnvironment& rank) {
  const int cores = num_cores();
  const int threads = rank.num_compute_threads > 0 ? rank.num_compute_threads : std::max(1, cores / rank.num_own_ranks);
  Settings settings = {
      {"TESSERA_JOB_ID", rank.job_id},
      {"TESSERA_STATUS_FD", std::to_string(rank.status.fd())},
      {"TESSERA_STATUS_FILE", own_descriptor(rank.status)},
  };
  // Unless the command line says it, TESSERA_NUM_THREADS and OMP_NUM_THREADS are the user's to set; else the rank finds
  // its share as the latter.
  if (rank.num_compute_threads > 0) settings["TESSERA_NUM_THREADS"] = std::to_string(threads);
  if (rank.figures) {
    settings["TESSERA_FIGURES_FD"] = std::to_string(rank.figures.fd());
    settings["TESSERA_FIGURES_FILE"] = own_descriptor(rank.figures);
  }
  if (rank.num_servers > 0) {
    settings["TESSERA_NUM_SERVERS"] = std::to_string(rank.num_servers);
    if (!rank.is_threads) settings["TESSERA_ROLE"] = rank.place < rank.num_servers ? "server" : "worker";
  }
  if (rank.is_threads) {
    settings["TESSERA_THREAD_RANKS"] = std::to_string(rank.num_own_ranks);
  } else {
    settings["TESSERA_RANK"] = std::to_string(rank.rank);
    settings["TESSERA_SIZE"] = std::to_string(rank.num_ranks);
    // What published scripts read of their place.
    settings["RANK_ID"] = std::to_string(rank.rank);
    settings["DEVICE_ID"] = std::to_string(rank.place);
    settings["RANK_SIZE"] = std::to_string(rank.num_ranks);
    add_meeting(rank, settings);
  }
  if (!rank.transport.empty()) settings["TESSERA_TRANSPORT"] = rank.transport;
  if (!rank.interface.empty()) settings["TESSERA_INTERFACE"] = rank.interface;
  if (!rank.report_directory.empty()) settings["TESSERA_REPORT_DIR"] = rank.report_directory;
  if (!rank.timeline.file.empty()) {
    settings["TESSERA_TRACE"] = rank.timeline.file;
    settings["TESSERA_TRACE_STEPS"] = timeline::to_string(rank.timeline.steps);
  }
  if (rank.timeout_ms > 0) settings["TESSERA_TIMEOUT_MS"] = std::to_string(rank.timeout_ms);
  Settings defaults = {{"OMP_NUM_THREADS", std::to_string(threads)}};
  // An idle OpenMP thread spins for its next work, on a core that another rank needs.
  if (threads * rank.num_own_ranks > cores) defaults["OMP_WAIT_POLICY"] = "passive";
  return child_environment(settings, defaults);
}

}  // namespace tessera::cluster
