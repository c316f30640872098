#include "tessera/cluster/launcher/rank_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include "tessera/base/strings.h"

namespace tessera::cluster {
namespace {

// Longer lines are passed on in pieces.
constexpr size_t kMaxLine = 1 << 16;
// Of an error that is held back, to be said once for all ranks that say it. What is longer is passed on.
constexpr size_t kMaxHeld = 1 << 16;
constexpr int kMaxHeldLines = 200;

// Whether a line on standard error begins the report of an error that ends a program: of a program of Tessera's, of
// Python's, or of its argument parser's.
bool begins_error(std::string_view line) {
  if (line.starts_with("rank ")) {
    const size_t end = line.find_first_not_of("0123456789", 5);
    return end != 5 && end != std::string_view::npos && line.substr(end).starts_with(": error: ");
  }
  return line.starts_with("error: ") || line.starts_with("Traceback (most recent call last):") ||
         line.starts_with("usage: ");
}

// Whether a line behind the report of an error cannot be a part of it, so that its program goes on. Where a traceback
// ends cannot be told: its message may have any lines.
bool goes_on(std::string_view report, std::string_view line) {
  if (report.starts_with("Traceback") || report.starts_with("usage: ")) return false;
  const bool is_about_usage = line.starts_with("usage: ") || line.find(" --help lists ") != std::string_view::npos;
  return !line.starts_with(' ') && !line.starts_with('\t') && !is_about_usage;
}

}  // namespace

std::string_view without_end(std::string_view line) { return line.substr(0, line.find_last_not_of(" \t\r\n") + 1); }

RankOutput::RankOutput(Socket source, LauncherOutput& target, std::string prefix, std::deque<std::string>* last_lines,
                       bool holds_errors)
    : source_(std::move(source)),
      target_(&target),
      prefix_(std::move(prefix)),
      last_lines_(last_lines),
      holds_errors_(holds_errors) {
  fcntl(source_.fd(), F_SETFL, fcntl(source_.fd(), F_GETFL) | O_NONBLOCK);
}

void RankOutput::set_log(std::shared_ptr<RankLog> log, std::function<void(int error)> on_full) {
  log_ = std::move(log);
  on_full_ = std::move(on_full);
}

bool RankOutput::drain() {
  if (!source_) return true;
  if (is_held_up()) return false;
  // Not on the stack, which `ulimit -s` may keep to 32 KiB.
  std::vector<char> buffer(1 << 14);
  const ssize_t count = read(source_.fd(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return errno == EAGAIN;
  if (count <= 0) {
    finish();
    return true;
  }
  rest_.append(buffer.data(), static_cast<size_t>(count));
  // A progress bar ends its lines by a return.
  size_t end;
  while ((end = rest_.find_first_of("\n\r")) != std::string::npos || rest_.size() > kMaxLine) {
    take_line(end == std::string::npos ? kMaxLine : end + 1);
  }
  return false;
}

void RankOutput::finish() {
  if (!rest_.empty()) {
    rest_.push_back('\n');
    take_line(rest_.size());
  }
  source_ = Socket();
}

void RankOutput::release() {
  std::string lines = std::move(held_);
  held_.clear();
  num_held_ = 0;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size() - 1) + 1;
    pass_line(lines.substr(begin, end - begin));
    begin = end;
  }
}

void RankOutput::take_line(size_t length) {
  const std::string line = rest_.substr(0, length);
  rest_.erase(0, length);
  if (!held_.empty() && goes_on(held_, line)) release();
  if (!holds_errors_ || (held_.empty() && !begins_error(line))) return pass_line(line);
  held_ += line;
  if (held_.size() > kMaxHeld || ++num_held_ > kMaxHeldLines) release();
}

bool RankOutput::write_log(const std::string& line) {
  if (log_ == nullptr) return false;
  log_->output().write(line);
  const int error = log_->output().error();
  if (error == 0) return true;
  log_ = nullptr;
  on_full_(error);
  return false;
}

void RankOutput::pass_line(const std::string& line) {
  if (!write_log(line)) target_->write(prefix_ + line);
  if (heard_ && !line.ends_with('\r')) heard_(without_end(line));
  last_lines_->push_back(std::string(without_end(line)));
  if (last_lines_->size() > kLastLines) last_lines_->pop_front();
}

}  // namespace tessera::cluster
