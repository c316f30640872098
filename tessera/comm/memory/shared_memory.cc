#include "tessera/comm/memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/limits.h"
#include "tessera/base/logging.h"
#include "tessera/base/processes/descriptor.h"
#include "tessera/base/processes/memory_file.h"
#include "tessera/base/processes/peer_memory.h"
#include "tessera/base/strings.h"
#include "tessera/comm/watched_wait.h"

namespace tessera::comm {
namespace {

// So often a rank that waits for a group's memory looks whether it is to say so.
constexpr int64_t kLookMs = 100;
// After so long it looks whether the one that makes the memory waits for it elsewhere, as calls do (board.cc).
constexpr int64_t kCrossedWaitMs = 500;
constexpr const char* kNameOfMemory = "tessera";

// Whether the system refuses shared memory of so many bytes, which is a file to it.
bool is_too_large(size_t bytes) {
  const int64_t limit = file_size_limit();
  return limit >= 0 && bytes > static_cast<size_t>(limit);
}

int create_memory(size_t bytes) {
  const int fd = make_memory_file(kNameOfMemory, static_cast<int64_t>(bytes));
  if (fd >= 0) return fd;
  const int reason = errno;
  if (is_too_large(bytes)) {
    throw IoError(
        "cannot make {} bytes of shared memory: it counts as a file, and a file of this process may have {} bytes "
        "(ulimit -f): raise that limit (ulimit -f unlimited), or let the ranks talk by sockets (--transport tls, or "
        "TESSERA_TRANSPORT=tls)",
        bytes, file_size_limit());
  }
  throw IoError("cannot make {} bytes of shared memory: {}", bytes, std::strerror(reason));
}

std::string path_of(const Descriptor& fd) { return fmt::format("/proc/{}/fd/{}", getpid(), fd.get()); }

int open_memory(const std::string& path, int owner) {
  return open_memory_of_process(path, kNameOfMemory, fmt::format("the shared memory of rank {}", owner));
}

size_t size_of(const Descriptor& fd) {
  struct stat status {};
  return fstat(fd.get(), &status) == 0 ? static_cast<size_t>(status.st_size) : 0;
}

// Large mappings begin on a huge page's border, in all processes, so that they can consist of such pages.
std::shared_ptr<void> map_shared(const Descriptor& fd, size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t slack = bytes >= kHugePage ? kHugePage : 0;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* reserved = mmap(nullptr, bytes + slack, PROT_NONE, flags, -1, 0);
  void* memory = MAP_FAILED;
  if (reserved != MAP_FAILED) {
    const auto first = reinterpret_cast<uintptr_t>(reserved);
    const uintptr_t start = slack == 0 ? first : (first + slack - 1) / slack * slack;
    memory = mmap(reinterpret_cast<void*>(start), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                  fd.get(), 0);
  }
  if (memory == MAP_FAILED) {
    const int reason = errno;
    if (reserved != MAP_FAILED) munmap(reserved, bytes + slack);
    throw IoError("cannot map {} bytes of shared memory: {}; {}", bytes, std::strerror(reason), limits_text());
  }
  return {memory, [reserved, size = bytes + slack](void*) { munmap(reserved, size); }};
}

// The memory that ranks have allocated to be read by their peers. An address is a segment's number and an offset in it.
// Thread-safe.
class SegmentSpace final : public PeerAddresses {
 public:
  SegmentSpace(Store& store, int rank, int64_t timeout_ms) : store_(&store), rank_(rank), timeout_ms_(timeout_ms) {}

  // Nothing is set, asked for and forgotten at the store from here on.
  void detach() {
    const std::lock_guard lock(mutex_);
    store_ = nullptr;
  }

  // The caller keeps the space alive as long as the memory.
  void* allocate(size_t bytes) {
    auto segment = std::make_unique<Segment>(create_memory(bytes));
    segment->memory = map_shared(segment->fd, bytes);
    segment->bytes = bytes;
    const std::lock_guard lock(mutex_);
    segment->number = ++last_number_;
    check(store_ != nullptr, "shared memory is reserved while its transport lives");
    store_->set(key(rank_, segment->number), path_of(segment->fd));
    void* memory = segment->memory.get();
    own_[static_cast<const std::byte*>(memory)] = std::move(segment);
    return memory;
  }

  void release(void* memory) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = own_.find(static_cast<const std::byte*>(memory));
    // Peers may keep their mapping; its pages go now, and who read them would be ended by SIGBUS.
    [[maybe_unused]] const int result = is_kept_ ? 0 : ftruncate(found->second->fd.get(), 0);
    const uint64_t number = found->second->number;
    own_.erase(found);
    if (store_ == nullptr) return;
    try {
      store_->forget(key(rank_, number));
    } catch (const std::exception&) {  // no memory to say so in: its path stays there
    }
  }

  std::optional<uint64_t> publish(const void* data, int64_t bytes) override {
    const auto* begin = static_cast<const std::byte*>(data);
    const std::lock_guard lock(mutex_);
    auto next = own_.upper_bound(begin);
    if (next == own_.begin()) return std::nullopt;
    const auto& [base, segment] = *--next;
    if (begin + bytes > base + segment->bytes) return std::nullopt;
    return segment->number << kOffsetBits | static_cast<uint64_t>(begin - base);
  }

  bool keep_for_peers() override {
    const std::lock_guard lock(mutex_);
    is_kept_ = true;
    return true;
  }

  std::byte* resolve(int peer, uint64_t address, int64_t bytes) override {
    const uint64_t number = address >> kOffsetBits;
    const uint64_t offset = address & ((uint64_t{1} << kOffsetBits) - 1);
    const uint64_t end = offset + static_cast<uint64_t>(bytes);
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find({peer, number});
    if (found != peers_.end()) {
      check_end(*found->second, peer, end);
      return static_cast<std::byte*>(found->second->memory.get()) + offset;
    }
    // Segments that their owner has given up have no bytes any more.
    std::erase_if(peers_, [](const auto& entry) { return size_of(entry.second->fd) == 0; });
    check(store_ != nullptr, "ranks reach each other's memory while their transports live");
    const std::string name = key(peer, number);
    auto segment = std::make_unique<Segment>(open_memory(store_->get(name, timeout_ms_), peer));
    store_->forget(name);
    segment->bytes = size_of(segment->fd);
    check_end(*segment, peer, end);
    segment->memory = map_shared(segment->fd, segment->bytes);
    return static_cast<std::byte*>((peers_[{peer, number}] = std::move(segment))->memory.get()) + offset;
  }

 private:
  static constexpr int kOffsetBits = 44;  // 16 TiB; the top bit of an address is the board's

  struct Segment {
    explicit Segment(int descriptor) : fd(descriptor) {}
    Descriptor fd;
    std::shared_ptr<void> memory;
    size_t bytes = 0;
    uint64_t number = 0;
  };

  // Throws IoError where what a peer names ends beyond its memory.
  static void check_end(const Segment& segment, int peer, uint64_t end) {
    if (end <= segment.bytes) return;
    throw IoError("the shared memory of rank {} ends at byte {}, and it names bytes up to {}", peer, segment.bytes,
                  end);
  }

  static std::string key(int rank, uint64_t number) { return fmt::format("segment/{}/{}", rank, number); }

  Store* store_;  // null: the transport has gone
  int rank_;
  int64_t timeout_ms_;
  std::mutex mutex_;
  bool is_kept_ = false;  // what peers may still work in
  uint64_t last_number_ = 0;
  std::map<const std::byte*, std::unique_ptr<Segment>> own_;
  std::map<std::pair<int, uint64_t>, std::unique_ptr<Segment>> peers_;
};

// Boards whose usual size the system refuses (`ulimit -f`) have smaller slots and messages, halved so many times.
constexpr int kMaxHalvings = 6;
constexpr int64_t kMinMessageBytes = 4096;

BoardOptions halved(const BoardOptions& options, int times) {
  const auto half = [&](int64_t bytes, int64_t least) { return std::max(bytes >> times, std::min(bytes, least)); };
  BoardOptions smaller = options;
  smaller.slot_bytes = half(options.slot_bytes, kMinSlotBytes);
  smaller.message_bytes = half(options.message_bytes, kMinMessageBytes);
  return smaller;
}

class SharedMemoryTransport final : public Transport {
 public:
  SharedMemoryTransport(Store& store, JobState& job, int rank, const SharedMemoryOptions& options)
      : store_(store),
        job_(job),
        rank_(rank),
        segments_(std::make_shared<SegmentSpace>(store, rank, options.wait.timeout_ms)),
        options_{.wait = options.wait,
                 .link = {},
                 .slot_bytes = options.slot_bytes,
                 .message_bytes = options.message_bytes} {}

  ~SharedMemoryTransport() override { segments_->detach(); }

  std::string name() const override { return "shared memory"; }

  std::unique_ptr<Communicator> create_communicator(const GroupInfo& group) override {
    const std::string key = fmt::format("board/{}/{}/{}", group.number, group.part, group.ranks.front());
    const int creator = group.ranks.front();
    BoardOptions options = options_;
    size_t bytes = board_bytes(static_cast<int>(group.ranks.size()), options);
    const auto make_smaller_while = [&](const auto& is_wrong) {
      for (int times = 1; times <= kMaxHalvings && is_wrong(bytes); ++times) {
        options = halved(options_, times);
        bytes = board_bytes(static_cast<int>(group.ranks.size()), options);
      }
    };
    if (group.rank == 0) make_smaller_while(is_too_large);
    const Descriptor fd(group.rank == 0 ? create_memory(bytes) : open_memory(await_creator(group, key), creator));
    // The creator's limit counts.
    make_smaller_while([size = size_of(fd)](size_t expected) { return expected != size; });
    if (size_of(fd) != bytes) {
      throw IoError(
          "group \"{}\": rank {} makes another group at this place than rank {}; every rank must create the "
          "same groups in the same order",
          group.name, creator, group.ranks[static_cast<size_t>(group.rank)]);
    }
    std::shared_ptr<void> memory = map_shared(fd, bytes);
    if (group.rank == 0) {
      initialize_board(memory.get(), group, options);
      store_.set(key, path_of(fd));
    }
    void* place = memory.get();
    auto board = std::make_unique<Board>(group, place, std::move(memory), segments_, job_, options);
    // The creator's descriptor closes when this function returns: all must have opened it by then. Meanwhile the group
    // is one between whose calls and those of a main group there is an order.
    board->set_driver(Communicator::Driver::kDriven);
    meet(group, *board);
    board->set_driver(Communicator::Driver::kUnknown);
    store_.forget(key);
    return make_board_communicator(group, std::move(board));
  }

  std::shared_ptr<void> allocate(size_t bytes) override {
    if (is_too_large(bytes)) {
      warn_of_copies(bytes);
      return nullptr;
    }
    void* memory = segments_->allocate(std::max<size_t>(bytes, 1));
    return {memory, [segments = segments_](void* p) { segments->release(p); }};
  }

 private:
  static CallHeader header_of(const GroupInfo& group) {
    CallHeader header;
    header.group = group.id();
    header.set_who("create_group");
    return header;
  }

  // Where the memory is that the group's first rank makes, once it has.
  std::string await_creator(const GroupInfo& group, const std::string& key) {
    const CallHeader header = header_of(group);
    WatchedWait watch(header, group, 0, options_.wait.timeout_ms, job_);
    const auto start = std::chrono::steady_clock::now();
    while (true) {
      if (auto found = find(header, group, key)) return *std::move(found);
      if (job_.has_left(group.ranks.front())) throw_left(header, group, 0);
      const auto waited = std::chrono::steady_clock::now() - start;
      const int64_t waited_ms = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
      if (waited_ms >= options_.wait.timeout_ms) throw_late(header, group, 0, waited_ms, "");
      if (waited_ms >= kCrossedWaitMs) look_for_crossed_wait(header, group);
      watch.look(waited_ms);
    }
  }

  // What the store says for a short time; another rank's failure ends the call.
  std::optional<std::string> find(const CallHeader& header, const GroupInfo& group, const std::string& key) {
    try {
      return store_.find(key, std::min(kLookMs, options_.wait.timeout_ms));
    } catch (const PeerFailure&) {
      if (job_.failed()) throw_peer_failure(header, group, job_);
      throw;
    }
  }

  // A rank makes a group between two of its calls: where the creator waits for this rank in one of them, in whatever
  // group, it does not come here.
  void look_for_crossed_wait(const CallHeader& header, const GroupInfo& group) {
    const int own = group.ranks[static_cast<size_t>(group.rank)];
    for (const auto driver : {Communicator::Driver::kMain, Communicator::Driver::kDriven}) {
      const auto found = job_.find_wait(own, group.ranks.front(), driver);
      if (!found.empty()) throw_crossed(header, group, 0, found);
    }
  }

  static void meet(const GroupInfo& group, Board& board) {
    CallHeader header = header_of(group);
    const uint32_t step = board.open(header);
    board.post(step, header);
    for (int p = 0; p < static_cast<int>(group.ranks.size()); ++p) {
      if (p != group.rank) board.await_post(step, p);
    }
    board.close(step);
  }

  // All ranks of a host have the same limit: one of them says it, once.
  void warn_of_copies(size_t bytes) {
    if (rank_ != 0 || has_warned_.exchange(true)) return;
    log_warning(
        "ranks reserve {} each to work in one another's memory; shared memory counts as a file, and a file may have {} "
        "here (ulimit -f): what they send is copied instead, which is slower; ulimit -f unlimited avoids that",
        format_bytes(static_cast<int64_t>(bytes)), format_bytes(file_size_limit()));
  }

  Store& store_;
  JobState& job_;
  int rank_;
  std::shared_ptr<SegmentSpace> segments_;
  BoardOptions options_;
  std::atomic<bool> has_warned_{false};
};

}  // namespace

std::unique_ptr<Transport> make_shared_memory_transport(Store& store, JobState& job, int rank,
                                                        const SharedMemoryOptions& options) {
  return std::make_unique<SharedMemoryTransport>(store, job, rank, options);
}

}  // namespace tessera::comm
