#include "tessera/kernels/sharing/device_meeting.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <new>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/integers.h"
#include "tessera/base/processes/memory_file.h"
#include "tessera/base/processes/peer_memory.h"

namespace tessera::kernels {
namespace {

// Mostly the others come at once. Ranks may outnumber the cores.
constexpr int kPausesAwake = 2000;
constexpr std::chrono::microseconds kPauseAsleep{50};
// Between calls of `waiting`.
constexpr int64_t kLookNs = 1'000'000;
// How long a wait goes on after a rank has given up: its reason is on its way, and says more.
constexpr int64_t kReasonNs = 2'000'000'000;
constexpr const char* kNameOfFile = "tessera-device";

class Pauses {
 public:
  void next() {
    if (num_passed_++ < kPausesAwake) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPauseAsleep);
    }
  }

 private:
  int num_passed_ = 0;
};

uint64_t draw() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// A meeting's id: the process that made it, its descriptor there, and a number that tells it from others which had
// that descriptor before.
struct Id {
  int64_t process = 0;
  int64_t file = 0;
  uint64_t number = 0;
};

std::string text_of(const Id& id) { return fmt::format("{}:{}:{}", id.process, id.file, id.number); }

Id parse_id(const std::string& text) {
  Id id;
  const char* at = text.data();
  const char* const end = at + text.size();
  bool is_right = true;
  const auto take = [&](auto& number, bool is_last) {
    const auto [after, error] = std::from_chars(at, end, number);
    is_right = is_right && error == std::errc{} && (is_last ? after == end : after != end && *after == ':');
    at = is_right && !is_last ? after + 1 : after;
  };
  take(id.process, false);
  take(id.file, false);
  take(id.number, true);
  if (!is_right) throw IoError("a device that ranks share: \"{}\" is no meeting of theirs", text);
  return id;
}

}  // namespace

std::string name_of_process() {
  // Processes of other namespaces may have the same number, and children of fork() the same draw.
  static const uint64_t drawn = draw();
  return fmt::format("{}:{}", ::getpid(), drawn);
}

// Zeros are a page to which nobody has come.
struct DeviceMeeting::Page {
  struct Rank {
    std::atomic<uint32_t> has_come{0};
    std::atomic<uint64_t> posted{0};
    std::atomic<uint64_t> done{0};
    std::array<PostedExchange, 2> posts;  // in turn
    std::array<char, 64> process;
    std::array<char, kMostHandleBytes> handle;
    uint64_t handle_bytes = 0;
  };
  struct Messages {
    std::atomic<uint64_t> sent{0};
    std::atomic<uint64_t> taken{0};
  };
  uint64_t number = 0;
  std::atomic<int> given_up{0};  // a rank and one
  std::array<Rank, kMostRanks> ranks;
  std::array<std::array<Messages, kMostRanks>, kMostRanks> messages;  // from, to
};

namespace {

struct Known {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<DeviceMeeting>> made;  // here, by id, until they are dismissed
  std::map<std::string, std::weak_ptr<DeviceMeeting>> found;
};

Known& known() {
  static auto& all = *new Known();  // ranks may still be leaving when the process ends
  return all;
}

}  // namespace

std::string DeviceMeeting::make() {
  const int file = make_memory_file(kNameOfFile, sizeof(Page));
  void* const memory =
      file < 0 ? MAP_FAILED : ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    const int reason = errno;
    if (file >= 0) ::close(file);
    throw IoError("a device that ranks share: no memory of the host for {} bytes: {}", sizeof(Page),
                  std::strerror(reason));
  }
  auto* const page = new (memory) Page();
  page->number = draw();
  const std::shared_ptr<DeviceMeeting> made(new DeviceMeeting(file, page));
  const std::string id = text_of({.process = ::getpid(), .file = file, .number = page->number});
  const std::lock_guard lock(known().mutex);
  known().made[id] = made;
  known().found[id] = made;
  return id;
}

std::shared_ptr<DeviceMeeting> DeviceMeeting::find(const std::string& id) {
  const std::lock_guard lock(known().mutex);
  auto& found = known().found;
  std::erase_if(found, [](const auto& entry) { return entry.second.expired(); });
  const auto it = found.find(id);
  if (it != found.end()) {
    if (auto meeting = it->second.lock()) return meeting;
  }
  auto meeting = open(id);
  found[id] = meeting;
  return meeting;
}

std::shared_ptr<DeviceMeeting> DeviceMeeting::open(const std::string& text) {
  const Id id = parse_id(text);
  const std::string path = fmt::format("/proc/{}/fd/{}", id.process, id.file);
  const int file = open_memory_of_process(path, kNameOfFile, "the memory in which ranks of one device meet");
  const bool has_its_size = ::lseek(file, 0, SEEK_END) == off_t{sizeof(Page)};
  void* const memory =
      has_its_size ? ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  auto* const page = static_cast<Page*>(memory);
  if (memory == MAP_FAILED || page->number != id.number) {
    if (memory != MAP_FAILED) ::munmap(memory, sizeof(Page));
    ::close(file);
    throw IoError(
        "a device that ranks share: {} is no meeting of these ranks: their processes see different ones below /proc",
        path);
  }
  return std::shared_ptr<DeviceMeeting>(new DeviceMeeting(file, page));
}

void DeviceMeeting::dismiss(const std::string& id) {
  std::shared_ptr<DeviceMeeting> last;  // goes when the lock is given up
  const std::lock_guard lock(known().mutex);
  const auto it = known().made.find(id);
  if (it == known().made.end()) return;
  last = std::move(it->second);
  known().made.erase(it);
}

DeviceMeeting::DeviceMeeting(int file, Page* page) : file_(file), page_(page), blocks_(kMostRanks) {}

DeviceMeeting::~DeviceMeeting() {
  ::munmap(page_, sizeof(Page));
  ::close(file_);
}

template <typename Holds>
void DeviceMeeting::await(const Holds& holds, const Waiting& waiting) {
  int64_t looked_ns = Clock::system().monotonic_ns();
  int64_t given_up_ns = 0;
  for (Pauses pauses; !holds(); pauses.next()) {
    const int64_t now_ns = Clock::system().monotonic_ns();
    if (now_ns - looked_ns < kLookNs) continue;
    looked_ns = now_ns;
    waiting();
    const int rank = given_up_by();
    if (rank < 0) continue;
    if (given_up_ns == 0) given_up_ns = now_ns;
    if (now_ns - given_up_ns >= kReasonNs) {
      throw IoError("a device that ranks share: rank {} of the group has given it up", rank);
    }
  }
}

void DeviceMeeting::enter(int rank, std::shared_ptr<std::byte> block, const std::string& handle) {
  {
    const std::lock_guard lock(mutex_);
    blocks_[as_index(rank)] = std::move(block);
  }
  Page::Rank& own = page_->ranks[as_index(rank)];
  check(handle.size() <= kMostHandleBytes, "a handle of a device's memory is too long");
  std::memcpy(own.handle.data(), handle.data(), handle.size());
  own.handle_bytes = handle.size();
  const std::string process = name_of_process();
  check(process.size() < own.process.size(), "the name of a process is too long");
  std::memcpy(own.process.data(), process.c_str(), process.size() + 1);
  own.has_come.store(1, std::memory_order_release);
}

void DeviceMeeting::await_all(int size, const Waiting& waiting) {
  for (int rank = 0; rank < size; ++rank) {
    await([&] { return page_->ranks[as_index(rank)].has_come.load(std::memory_order_acquire) != 0; }, waiting);
  }
}

bool DeviceMeeting::is_of_this_process(int rank) const {
  return std::string_view(page_->ranks[as_index(rank)].process.data()) == name_of_process();
}

std::shared_ptr<std::byte> DeviceMeeting::block_of(int rank) {
  const std::lock_guard lock(mutex_);
  return blocks_[as_index(rank)];
}

std::string DeviceMeeting::handle_of(int rank) const {
  const Page::Rank& of_rank = page_->ranks[as_index(rank)];
  return {of_rank.handle.data(), std::min<size_t>(of_rank.handle_bytes, kMostHandleBytes)};
}

void DeviceMeeting::post(int rank, uint64_t exchange, const PostedExchange& posted) {
  Page::Rank& own = page_->ranks[as_index(rank)];
  own.posts[exchange % 2] = posted;
  own.posted.store(exchange, std::memory_order_release);
}

PostedExchange DeviceMeeting::await_post(int rank, uint64_t exchange, const Waiting& waiting) {
  const Page::Rank& theirs = page_->ranks[as_index(rank)];
  await([&] { return theirs.posted.load(std::memory_order_acquire) >= exchange; }, waiting);
  return theirs.posts[exchange % 2];
}

void DeviceMeeting::set_done(int rank, uint64_t exchange) {
  page_->ranks[as_index(rank)].done.store(exchange, std::memory_order_release);
}

uint64_t DeviceMeeting::done_of(int rank) const {
  return page_->ranks[as_index(rank)].done.load(std::memory_order_acquire);
}

void DeviceMeeting::await_taken(int from, int to, const Waiting& waiting) {
  const Page::Messages& messages = page_->messages[as_index(from)][as_index(to)];
  await([&] { return messages.taken.load(std::memory_order_acquire) == messages.sent.load(); }, waiting);
}

void DeviceMeeting::await_sent(int from, int to, const Waiting& waiting) {
  const Page::Messages& messages = page_->messages[as_index(from)][as_index(to)];
  await([&] { return messages.sent.load(std::memory_order_acquire) != messages.taken.load(); }, waiting);
}

void DeviceMeeting::set_sent(int from, int to) {
  page_->messages[as_index(from)][as_index(to)].sent.fetch_add(1, std::memory_order_release);
}

void DeviceMeeting::set_taken(int from, int to) {
  page_->messages[as_index(from)][as_index(to)].taken.fetch_add(1, std::memory_order_release);
}

void DeviceMeeting::give_up(int rank) {
  int nobody = 0;
  page_->given_up.compare_exchange_strong(nobody, rank + 1);
}

int DeviceMeeting::given_up_by() const { return page_->given_up.load() - 1; }

}  // namespace tessera::kernels
