#include "tessera/train/logs/last_line.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "tessera/base/clock.h"

namespace tessera::train {
namespace {

constexpr std::array kEndSignals = {SIGTERM, SIGINT, SIGHUP};
constexpr size_t kMaxLineBytes = 1000;
constexpr size_t kMaxLastLines = 16;
constexpr size_t kTimeBytes = 24;  // "2026-03-04T05:06:07.089Z"
constexpr int kMostWaits = 100;
constexpr long kWaitForWriterNs = 10'000'000;
constexpr pid_t kTaken = -1;  // by the handler, for good

struct LineParts {
  std::array<char, kMaxLineBytes> bytes{};
  size_t size = 0;  // 0: there is no line
  size_t time_at = 0;
  size_t signal_at = 0;
};

struct LineSlot {
  std::atomic<int> fd{-1};
  std::atomic<pid_t> writer{0};  // the thread that is at it
  // What is not current is being made.
  std::array<LineParts, 2> parts;
  std::atomic<size_t> current{0};
  bool is_used = false;  // guarded by the mutex
};

struct LineHandling {
  std::mutex mutex;
  int num_lines = 0;
  std::array<struct sigaction, kEndSignals.size()> before{};  // written while the handler is not there
  std::atomic<pid_t> process{-1};
  std::array<LineSlot, kMaxLastLines> slots;
};
static_assert(std::atomic<pid_t>::is_always_lock_free && std::atomic<size_t>::is_always_lock_free);

LineHandling& line_handling() {
  static LineHandling handling;
  return handling;
}

// What follows makes system calls only: handlers of signals call it.
void write_digits(char* to, int64_t value, int count) {
  for (int i = count - 1; i >= 0; --i, value /= 10) to[i] = static_cast<char>('0' + value % 10);
}

// As utc_time(), without the C library's tables. Days to a date: the year begins in March, so that leap days are last.
void write_time(char* to) {
  const int64_t now_ms = Clock::system().wall_ms();
  const int64_t seconds = now_ms / 1000;
  const int64_t days = seconds / 86400 + 719468;
  const int64_t era = days / 146097;
  const int64_t day_of_era = days - era * 146097;
  const int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t from_march = (5 * day_of_year + 2) / 153;
  const int64_t month = from_march < 10 ? from_march + 3 : from_march - 9;
  std::memcpy(to, "0000-00-00T00:00:00.000Z", kTimeBytes);
  write_digits(to, year_of_era + era * 400 + (month <= 2 ? 1 : 0), 4);
  write_digits(to + 5, month, 2);
  write_digits(to + 8, day_of_year - (153 * from_march + 2) / 5 + 1, 2);
  write_digits(to + 11, seconds / 3600 % 24, 2);
  write_digits(to + 14, seconds / 60 % 60, 2);
  write_digits(to + 17, seconds % 60, 2);
  write_digits(to + 20, now_ms % 1000, 3);
}

const char* name_of_end_signal(int number) {
  return number == SIGTERM ? "SIGTERM" : number == SIGINT ? "SIGINT" : "SIGHUP";
}

void write_last_line(LineSlot& slot, int number) {
  const int fd = slot.fd.load();
  if (fd < 0) return;
  const pid_t self = gettid();
  for (int i = 0; i < kMostWaits; ++i) {
    pid_t writer = 0;
    // A thread that the signal has interrupted does not go on.
    if (slot.writer.compare_exchange_strong(writer, kTaken) || writer == self || writer == kTaken) break;
    const timespec pause{0, kWaitForWriterNs};
    nanosleep(&pause, nullptr);
  }
  const LineParts& parts = slot.parts[slot.current.load()];
  struct stat status {};
  if (parts.size == 0 || fstat(fd, &status) != 0) return;
  std::array<char, kMaxLineBytes + kTimeBytes + 16> line{};
  size_t size = 0;
  const auto add = [&](const char* bytes, size_t count) {
    std::memcpy(line.data() + size, bytes, count);
    size += count;
  };
  const char* const name = name_of_end_signal(number);
  add(parts.bytes.data(), parts.time_at);
  write_time(line.data() + size);
  size += kTimeBytes;
  add(parts.bytes.data() + parts.time_at, parts.signal_at - parts.time_at);
  add(name, std::strlen(name));
  add(parts.bytes.data() + parts.signal_at, parts.size - parts.signal_at);
  add("\n", 1);
  [[maybe_unused]] const ssize_t written = pwrite(fd, line.data(), size, status.st_size);
  slot.fd.store(-1);  // a second signal writes none
}

void write_lines_and_end(int number) {
  const int error = errno;
  LineHandling& handling = line_handling();
  if (handling.process.load() == getpid()) {
    for (LineSlot& slot : handling.slots) write_last_line(slot, number);
  }
  for (size_t i = 0; i < kEndSignals.size(); ++i) {
    if (kEndSignals[i] == number) sigaction(number, &handling.before[i], nullptr);
  }
  errno = error;
  raise(number);  // once this handler has returned
}

// As what would end the process: nothing that the program has set itself (cluster/termination.cc).
bool ends_the_process(const struct sigaction& action) {
  if ((action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler == SIG_IGN) return false;
  return action.sa_handler == SIG_DFL || (static_cast<unsigned>(action.sa_flags) & SA_RESETHAND) != 0;
}

}  // namespace

LastLine::LastLine(const std::string& path) {
  LineHandling& handling = line_handling();
  const std::lock_guard lock(handling.mutex);
  for (size_t i = 0; i < handling.slots.size() && slot_ < 0; ++i) {
    if (!handling.slots[i].is_used) slot_ = static_cast<int>(i);
  }
  if (slot_ < 0) return;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    slot_ = -1;
    return;
  }
  LineSlot& slot = handling.slots[static_cast<size_t>(slot_)];
  slot.is_used = true;
  slot.parts[slot.current].size = 0;
  slot.writer = 0;
  slot.fd = fd;
  handling.process = getpid();
  static_cast<void>(Clock::system().wall_ms());  // made before a handler asks it
  if (handling.num_lines++ > 0) return;
  for (size_t i = 0; i < kEndSignals.size(); ++i) {
    struct sigaction now {};
    if (sigaction(kEndSignals[i], nullptr, &now) != 0 || !ends_the_process(now)) continue;
    if (now.sa_handler == write_lines_and_end) continue;
    handling.before[i] = now;
    struct sigaction action {};
    action.sa_handler = write_lines_and_end;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(kEndSignals[i], &action, nullptr);
  }
}

LastLine::~LastLine() {
  if (slot_ < 0) return;
  LineHandling& handling = line_handling();
  const std::lock_guard lock(handling.mutex);
  LineSlot& slot = handling.slots[static_cast<size_t>(slot_)];
  const int fd = slot.fd.exchange(-1);
  if (fd >= 0) ::close(fd);
  slot.is_used = false;
  if (--handling.num_lines > 0) return;
  for (size_t i = 0; i < kEndSignals.size(); ++i) {
    struct sigaction now {};
    // Who has come since has this handler to go back to, which does nothing then but end the process.
    if (sigaction(kEndSignals[i], nullptr, &now) != 0 || now.sa_handler != write_lines_and_end) continue;
    sigaction(kEndSignals[i], &handling.before[i], nullptr);
  }
}

void LastLine::set(std::string_view before_time, std::string_view before_signal, std::string_view rest) {
  if (slot_ < 0) return;
  const Writing writing(*this);
  LineSlot& slot = line_handling().slots[static_cast<size_t>(slot_)];
  const size_t next = 1 - slot.current.load();
  LineParts& parts = slot.parts[next];
  parts.size = 0;
  if (before_time.size() + before_signal.size() + rest.size() <= kMaxLineBytes) {
    for (const std::string_view part : {before_time, before_signal, rest}) {
      std::memcpy(parts.bytes.data() + parts.size, part.data(), part.size());
      parts.size += part.size();
    }
    parts.time_at = before_time.size();
    parts.signal_at = before_time.size() + before_signal.size();
  }
  slot.current = next;
}

LastLine::Writing::Writing(LastLine& line) : slot_(line.slot_) {
  if (slot_ < 0) return;
  static thread_local const pid_t self = gettid();
  std::atomic<pid_t>& writer = line_handling().slots[static_cast<size_t>(slot_)].writer;
  pid_t nobody = 0;
  // Where the handler has it, the process ends.
  while (!writer.compare_exchange_strong(nobody, self)) {
    nobody = 0;
    const timespec pause{0, kWaitForWriterNs};
    nanosleep(&pause, nullptr);
  }
}

LastLine::Writing::~Writing() {
  if (slot_ >= 0) line_handling().slots[static_cast<size_t>(slot_)].writer = 0;
}

}  // namespace tessera::train
