// What a rank's process finds in its environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/timeline/timeline_options.h"

namespace tessera::cluster {

// A rank that is started, or the one process of ranks that are threads. What it refers to outlives it.
struct RankEnvironment {
  bool is_threads = false;
  int place = 0;  // among the ranks of this launcher
  int rank = 0;
  int num_ranks = 1;            // of the job
  int num_own_ranks = 1;        // of this launcher
  int num_servers = 0;          // of these; they are the first
  int num_compute_threads = 0;  // of a rank; 0: its share of the cores
  std::string transport;        // "", and an interface "", and a time of 0: as the rank chooses
  std::string interface;
  int64_t timeout_ms = 0;
  std::string report_directory;  // "": no reports are written
  timeline::TimelineOptions timeline;
  std::string job_id;     // of a job without a scheduler
  std::string scheduler;  // the address of a job's that has one; "": none
  std::string node_id;    // there
  uint64_t incarnation = 0;
  // Of these the process gets the descriptors, or where it finds them. Those that are not open it does not get.
  const Socket& status;
  const Socket& figures;
  const Socket& secret;
  const Socket& password;
  const Socket& kept;
  const Socket& kept_for_others;
};

// This process's own environment with what the rank is told, as "NAME=VALUE".
std::vector<std::string> entries_of(const RankEnvironment& rank);

}  // namespace tessera::cluster
