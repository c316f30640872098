#include "tessera/cluster/dashboard/launcher_dashboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <tuple>
#include <utility>
#include <vector>

#include "tessera/base/strings.h"
#include "tessera/cluster/launcher/rank_process.h"
#include "tessera/cluster/ranks/training_figures.h"

namespace tessera::cluster {
namespace {

constexpr size_t kMostFiguresRead = 1 << 16;
// After the job's end, for pages that ask once a second.
constexpr int64_t kLastLookMs = 1500;

DashboardPlace place_of(const DashboardOptions& options, const std::string& any_host) {
  DashboardPlace place = parse_dashboard_place(options.place);
  place.any_host = any_host;
  return place;
}

}  // namespace

bool take_figures_line(JobBoard& board, std::string_view line) {
  constexpr size_t kMostDigits = 6;
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space > kMostDigits) return false;
  const std::string_view rank = line.substr(0, space);
  if (rank.find_first_not_of("0123456789") != std::string_view::npos) return false;
  const auto figures = parse_figures(line.substr(space + 1));
  if (figures) board.take(static_cast<int>(parse_int(rank, "a rank")), *figures);
  return figures.has_value();
}

LauncherDashboard::LauncherDashboard(const DashboardOptions& options, std::string program, const std::string& any_host)
    : board_(std::move(program)), server_(place_of(options, any_host), options.page, board_) {
  std::tie(figures_read_, figures_write_) = make_pipe();
  for (const Socket* end : {&figures_read_, &figures_write_}) {
    fcntl(end->fd(), F_SETFL, fcntl(end->fd(), F_GETFL) | O_NONBLOCK);
  }
}

void LauncherDashboard::read_figures() {
  // Not on the stack, which `ulimit -s` may keep small.
  std::vector<char> bytes(kMostFiguresRead);
  const ssize_t count = read(figures_read_.fd(), bytes.data(), bytes.size());
  if (count <= 0) return;
  unread_.append(bytes.data(), static_cast<size_t>(count));
  size_t begin = 0;
  for (size_t end; (end = unread_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    take_figures_line(board_, std::string_view(unread_).substr(begin, end - begin));
  }
  unread_.erase(0, begin);
  if (unread_.size() > kMaxFiguresBytes + 16) unread_.clear();
}

void LauncherDashboard::end(BoardJobState state, const std::string& reason) {
  read_figures();
  board_.set_job(state, reason);
  server_.say_end(kLastLookMs);
}

}  // namespace tessera::cluster
