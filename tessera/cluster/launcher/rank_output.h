// RankOutput passes on, by whole lines, what a rank writes to one of its outputs. The report of an error is kept until
// the rank ends, or shows by its next line that it goes on, so that several ranks' equal ones can be said once. What
// goes to the rank's log goes on elsewhere once the log takes no more.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/launcher/launcher_output.h"

namespace tessera::cluster {

// So many last lines of a rank are remembered.
inline constexpr size_t kLastLines = 12;

// The line without its end and the blanks before that. Those at its beginning stay: they are the indentation of a
// traceback, and what its marks stand under.
std::string_view without_end(std::string_view line);

// A rank's log, which an output of an earlier process of the rank may still write to.
class RankLog {
 public:
  explicit RankLog(Socket file) : file_(std::move(file)), output_(file_.fd()) {}
  LauncherOutput& output() { return output_; }
  int fd() const { return file_.fd(); }

 private:
  Socket file_;
  LauncherOutput output_;
};

class RankOutput {
 public:
  RankOutput() = default;
  // `holds_errors`: the report of an error is kept.
  RankOutput(Socket source, LauncherOutput& target, std::string prefix, std::deque<std::string>* last_lines,
             bool holds_errors);

  // The lines go to this log, without the prefix. Once it takes no more, as where its disk is full, `on_full` is called
  // with the error, and they go to the target.
  void set_log(std::shared_ptr<RankLog> log, std::function<void(int error)> on_full);
  // Puts this before each line from the next one on, in place of the prefix that was given before.
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  // From now on `heard` is called with each line that is passed on, without the prefix and its end. Lines that the next
  // one overwrites, as those of a progress bar, are left out.
  void set_listener(std::function<void(std::string_view line)> heard) { heard_ = std::move(heard); }
  // What to wait for; -1 where there is nothing more, or nobody to take it now.
  int fd_to_wait_for() const { return source_ && !is_held_up() ? source_.fd() : -1; }
  // Passes on some of what is there, as much as is taken. Returns whether that is all for now. It reads once: a rank
  // that writes as fast as this reads must not keep the launcher from all else.
  bool drain();
  // Whether nobody takes what there is.
  bool is_held_up() const { return log_ == nullptr && target_->is_full(); }
  void finish();
  // The report that is held back; "" where there is none.
  const std::string& held() const { return held_; }
  // Passes it on.
  void release();

 private:
  void take_line(size_t length);
  void pass_line(const std::string& line);
  // False where there is no log, or it takes no more.
  bool write_log(const std::string& line);

  Socket source_;
  LauncherOutput* target_ = nullptr;
  std::shared_ptr<RankLog> log_;  // null: there is none, or it takes no more
  std::function<void(int error)> on_full_;
  std::function<void(std::string_view line)> heard_;
  std::string prefix_;
  std::deque<std::string>* last_lines_ = nullptr;
  bool holds_errors_ = false;
  std::string rest_;
  std::string held_;
  int num_held_ = 0;  // its lines
};

}  // namespace tessera::cluster
