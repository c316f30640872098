// LauncherDashboard: the dashboard of a launcher: its board, the server that shows it, and the pipe by which the ranks
// say how their trainings go. All but the server's thread is the launcher's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/cluster/dashboard/dashboard_server.h"
#include "tessera/cluster/dashboard/job_board.h"
#include "tessera/cluster/hub/hub_socket.h"

namespace tessera::cluster {

class LauncherDashboard {
 public:
  // So many descriptors of the launcher's it needs at most.
  static constexpr int kMostDescriptors = DashboardServer::kMostConnections + 80;

  // Listens. `program`: the command of the ranks, for people. `any_host`: as of a DashboardPlace. Throws
  // InvalidArgument for a place that can be none, IoError where it cannot listen.
  LauncherDashboard(const DashboardOptions& options, std::string program, const std::string& any_host);

  JobBoard& board() { return board_; }
  std::string url() const { return server_.url(); }
  std::string warning() const { return server_.warning(); }
  // What the ranks inherit; it takes writes without waiting.
  const Socket& figures() const { return figures_write_; }
  int fd_to_wait_for() const { return figures_read_.fd(); }
  // Takes what the ranks have said, a bounded part of it at a time. What is no line of theirs is passed over.
  void read_figures();
  // The job has ended so; who looks on is given time to see it.
  void end(BoardJobState state, const std::string& reason);

 private:
  JobBoard board_;
  Socket figures_read_;
  Socket figures_write_;
  std::string unread_;  // of a line whose end has not come yet
  DashboardServer server_;
};

// What a line of the pipe says, "RANK FIGURES" without its end, written on the board; false where it is none.
bool take_figures_line(JobBoard& board, std::string_view line);

}  // namespace tessera::cluster
