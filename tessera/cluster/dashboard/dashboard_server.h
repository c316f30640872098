// DashboardServer: serves a job's board at a port, in a thread of its own. Who reads slowly, sends half a request or
// keeps connections open costs that thread a bounded time and memory, and the job nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/cluster/dashboard/dashboard_answers.h"

namespace tessera::cluster {

class DashboardServer {
 public:
  static constexpr int kMostConnections = 256;  // at a time; further ones get a 503
  static constexpr int64_t kHeadMs = 5000;      // until a request's head has come
  static constexpr int64_t kAnswerMs = 10000;   // until its answer has been taken

  // Listens. Threads that handle signals must have blocked them before. Throws IoError where the address is taken or
  // cannot be had. The board must outlive this.
  DashboardServer(const DashboardPlace& place, const DashboardPage& page, const JobBoard& board);
  ~DashboardServer();
  DashboardServer(const DashboardServer&) = delete;
  DashboardServer& operator=(const DashboardServer&) = delete;

  // The page's address with its token, which who starts the job is told.
  std::string url() const;
  // Of a dashboard that others of the network reach: what they can see, as words of a warning; "" where it listens at
  // a loopback address.
  std::string warning() const;
  // The job has ended, and the board says so. Where somebody has read it lately, returns once they have had time to
  // read that, too: after `limit_ms` at most, without what the machine keeps this process waiting for.
  void say_end(int64_t limit_ms);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cluster
