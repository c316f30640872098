// RendezvousServer: a JobScheduler at a port, in one event loop. Whoever comes shows by TLS who it is before a byte of
// the job is spoken of; what that may cost is bounded, by address and in all. docs/security.md says what is promised.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tessera/base/clock.h"
#include "tessera/base/files/file_system.h"
#include "tessera/cluster/hub/strangers.h"
#include "tessera/cluster/rendezvous/host_port.h"
#include "tessera/cluster/rendezvous/membership/job_scheduler.h"
#include "tessera/cluster/tls/tls_options.h"

namespace tessera::cluster::rendezvous {

struct ServerOptions {
  HostPort address = {"127.0.0.1", 0};  // of one interface; port 0: any
  TlsOptions tls;
  SchedulerOptions scheduler;
  StrangerLimits strangers;
  std::string state_path;  // where the scheduler's state is kept; empty: nowhere
  // Is told what happens to the job, a line at a time, by the thread that serves. What a peer has said in it may hold
  // any characters.
  std::function<void(const std::string& line)> on_news = {};
  // Is told about once a second how the job is, by that thread, with a function that gives what a node has told of its
  // training (JobScheduler::figures_of()). It must not block.
  std::function<void(const JobStatus& status, uint64_t generation,
                     const std::function<std::string(const std::string& node_id)>& figures_of)>
      on_status = {};
};

class RendezvousServer {
 public:
  // Listens. Throws IoError where the address is taken or cannot be had, InvalidArgument for one that stands for every
  // interface, for a job without secret and certificates, and for a state of another job or of a scheduler that lives.
  // What is passed in must live longer.
  RendezvousServer(const ServerOptions& options, FileSystem& files, Clock& clock);
  ~RendezvousServer();

  // With the port that was chosen.
  const HostPort& address() const;
  // Serves in the calling thread until the job is over and its members have been told, or until stop(). Returns the
  // job's phase then.
  JobPhase run();
  // Ends run() soon; from any thread, and from a handler of signals.
  void stop();
  // Of a failed job, once run() has returned.
  const std::string& failure() const;
  // "2 of 4 workers have come: ...", once run() has returned.
  std::string who_is_missing() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cluster::rendezvous
