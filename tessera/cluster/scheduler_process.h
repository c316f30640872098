// The scheduler of a job, as a process of its own: `tessera scheduler`, and scripts that are started with
// MS_ROLE=MS_SCHED.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/cluster/dashboard/dashboard_page.h"

namespace tessera::cluster {

struct SchedulerOfJob {
  std::string host = "127.0.0.1";    // a name or an address of one interface of this host
  int port = 0;                      // 0: any
  int num_workers = 1;               // ranks of the job
  int64_t join_timeout_ms = 600000;  // until all of them are there
  // So often a worker may be lost and the job goes on, in another generation, when it is back. 0: a loss ends the job.
  int64_t max_restarts = 0;
  int64_t node_timeout_ms = 30000;  // a worker that says nothing for so long is lost
  // Of an elastic job: with from min_ranks to max_ranks ranks it goes on, without those that are lost and not back
  // rank_timeout_ms later, with those that join it later. 0: it has num_workers ranks.
  int min_ranks = 0;
  int max_ranks = 0;  // 0: num_workers
  int64_t rank_timeout_ms = 60000;
  int spares =
      0;  // so many workers more may wait until one is lost; then the job is elastic, by default of num_workers
  std::string state_path;           // a file in which its state outlives it; empty: none
  int err_fd = 2;                   // where it says what happens
  DashboardOptions dashboard = {};  // where people look on, and by which page; none: ranks are not asked for figures
};

// Serves the job until all its workers have left, and returns 0; 1 when the job has failed, and then says why; 128 + N
// after signal N. Whoever joins shows the secret of the job, or a certificate: docs/security.md. Throws InvalidArgument
// for options that cannot be, IoError where it cannot listen.
int run_scheduler_from_environment(const SchedulerOfJob& job);

struct SchedulerPlace;

// Serves a job in this process, in a thread of its own, at a free port of this host alone. Who joins shows the secret
// of `place`. Make it after the process has blocked the signals that end it: the thread must not get them.
class SchedulerInside {
 public:
  SchedulerInside(const SchedulerOfJob& job, const SchedulerPlace& place);
  ~SchedulerInside();
  SchedulerInside(const SchedulerInside&) = delete;
  SchedulerInside& operator=(const SchedulerInside&) = delete;

  const std::string& address() const { return address_; }  // HOST:PORT

 private:
  struct Serving;
  std::unique_ptr<Serving> serving_;
  std::string address_;
};

// What a scheduler at HOST:PORT says of its job, for people or as one JSON object. Throws IoError where nobody there
// answers within `timeout_ms`.
std::string scheduler_status_from_environment(const std::string& address, bool json, int64_t timeout_ms);

// Gives the elastic job of the scheduler at HOST:PORT this number of ranks, and returns what it says then. Throws
// IoError where the job cannot have so many, saying why, or nobody there answers within `timeout_ms`.
std::string resize_job_from_environment(const std::string& address, int num_ranks, int64_t timeout_ms);

// Makes an authority for tests, and certificates of roles, in a folder (tls/make_certificates.h lists the files), for
// these nodes, too. With `revoke`, a name of one of them, makes none but revokes it. The password is that of
// TESSERA_TLS_PASSWORD_FILE or TESSERA_TLS_PASSWORD. Returns what there is to say: that the certificate is revoked
// already, else "". Throws InvalidArgument without a password, and as making and revoking do.
std::string make_certificates_from_environment(const std::string& directory, const std::vector<std::string>& node_ids,
                                               int days, const std::string& revoke);

}  // namespace tessera::cluster
