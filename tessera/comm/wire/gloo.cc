#include "tessera/comm/wire/gloo.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/unbound_buffer.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/comm/wire/gloo_pair.h"

namespace tessera::comm {
namespace {

// Gloo waits five times its timeout for a connection.
constexpr int64_t kConnectFactor = 5;
// To connect all ranks. What fails for a stranger fails within the proof's limit, and is tried again; the last attempt
// has the job's own limit, for ranks that are only slow.
constexpr int kMaxAttempts = 4;
constexpr int64_t kFirstConnectMs = 5000;
constexpr int64_t kFirstProofMs = 2000;

class StoreAdapter final : public ::gloo::rendezvous::Store {
 public:
  // Each attempt has names of its own.
  StoreAdapter(comm::Store& store, int attempt, int64_t timeout_ms)
      : store_(store), prefix_(fmt::format("gloo/{}/", attempt)), timeout_ms_(timeout_ms) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(prefix_ + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_.get(prefix_ + key, timeout_ms_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  comm::Store& store_;
  std::string prefix_;
  int64_t timeout_ms_;
};

using Context = ::gloo::rendezvous::Context;

std::shared_ptr<Context> connect(const GlooOptions& options, comm::Store& store, int attempt) {
  const bool is_last = attempt + 1 == kMaxAttempts;
  const auto limit = [&](int64_t first_ms) {
    return is_last ? options.timeout_ms : std::min(options.timeout_ms, first_ms << attempt);
  };
  auto device = make_proven_device(options.address, {.secret = options.secret,
                                                     .size = options.size,
                                                     .attempt = attempt,
                                                     .time_limit = std::chrono::milliseconds(limit(kFirstProofMs))});
  StoreAdapter adapter(store, attempt, options.timeout_ms);
  auto context = std::make_shared<Context>(options.rank, options.size);
  context->setTimeout(std::chrono::milliseconds(limit(kFirstConnectMs) / kConnectFactor + 1));
  context->connectFullMesh(adapter, device);
  return context;
}

// What went wrong in this attempt, by rank; "" where nothing did. All ranks learn the same.
std::vector<std::string> exchange_outcomes(const GlooOptions& options, comm::Store& store, int attempt,
                                           const std::string& own) {
  const auto key = [&](int rank) { return fmt::format("gloo/{}/outcome/{}", attempt, rank); };
  store.set(key(options.rank), own);
  std::vector<std::string> outcomes;
  // The slowest rank gives up when its time to connect and its proof's are over.
  for (int rank = 0; rank < options.size; ++rank) outcomes.push_back(store.get(key(rank), 3 * options.timeout_ms));
  return outcomes;
}

std::shared_ptr<Context> connect_all(const GlooOptions& options, comm::Store& store) {
  std::string failures;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    std::shared_ptr<Context> context;
    std::string own;
    try {
      context = connect(options, store, attempt);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      own = *e.what() == '\0' ? "unknown" : e.what();
    }
    const std::vector<std::string> outcomes = exchange_outcomes(options, store, attempt, own.substr(0, 1024));
    const auto failed = std::find_if(outcomes.begin(), outcomes.end(), [](const auto& text) { return !text.empty(); });
    if (failed == outcomes.end()) return context;
    failures = fmt::format("rank {}: {}", failed - outcomes.begin(), printable(*failed));
  }
  throw IoError("rank {} cannot connect to its peers by Gloo from {} in {} attempts; the last one ended for {}",
                options.rank, options.address, kMaxAttempts, failures);
}

class GlooOperation;

class GlooWire final : public Wire, public std::enable_shared_from_this<GlooWire> {
 public:
  GlooWire(const GlooOptions& options, comm::Store& store, JobState& job) : job_(job) {
    struct sigaction action {};
    if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
    context_ = connect_all(options, store);
    context_->setTimeout(std::chrono::milliseconds(options.timeout_ms / kConnectFactor + 1));
    listener_ = job_.add_listener([this] { wake_all(); });
  }
  ~GlooWire() override { job_.remove_listener(listener_); }

  std::string name() const override { return "gloo"; }
  std::unique_ptr<Operation> make_operation() override;

 private:
  friend class GlooOperation;

  // Ends the waits under way, so that their ranks look at the job and the clock.
  void wake_all() {
    const std::lock_guard lock(mutex_);
    for (::gloo::transport::UnboundBuffer* buffer : waiting_) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
  }

  JobState& job_;
  std::shared_ptr<::gloo::Context> context_;
  std::mutex mutex_;
  std::multiset<::gloo::transport::UnboundBuffer*> waiting_;
  int listener_ = 0;
};

class GlooOperation final : public Wire::Operation {
 public:
  explicit GlooOperation(std::shared_ptr<GlooWire> wire) : wire_(std::move(wire)) {}

  void send(const void* data, int64_t bytes, int peer, int tag) override {
    start(const_cast<void*>(data), bytes, peer, true);
    run([&] { buffer_->send(peer, static_cast<uint64_t>(tag), 0, static_cast<size_t>(bytes)); });
  }
  void receive(void* data, int64_t bytes, int peer, int tag) override {
    start(data, bytes, peer, false);
    run([&] { buffer_->recv(peer, static_cast<uint64_t>(tag), 0, static_cast<size_t>(bytes)); });
  }

  Wire::End wait(int64_t timeout_ms, WatchedWait& watch) override {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    auto deadline = start + std::chrono::milliseconds(timeout_ms);
    bool saw_leave = false;
    const Waiting waiting(*wire_, buffer_.get());
    while (reason_.empty()) {
      // Once registered: a failure from here on wakes us.
      if (wire_->job_.failed()) return Wire::End::kFailed;
      if (!saw_leave && wire_->job_.has_left(peer_)) {
        saw_leave = true;
        deadline = std::min(deadline, Clock::now() + std::chrono::milliseconds(kLeftGraceMs));
      }
      watch.look(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count());
      // Rounded up: when Gloo's limit is over, so is ours.
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      bool is_done = false;
      run([&] {
        const auto limit = std::max(rest, std::chrono::milliseconds(1));
        is_done = is_send_ ? buffer_->waitSend(nullptr, limit) : buffer_->waitRecv(nullptr, limit);
      });
      if (is_done) return Wire::End::kDone;
      // Gloo's own word for the deadline is an exception, after which all its connections are closed.
      if (Clock::now() >= deadline) return saw_leave ? Wire::End::kLeft : Wire::End::kLate;
    }
    return wire_->job_.failed() ? Wire::End::kFailed : Wire::End::kLost;
  }
  std::string reason() const override { return reason_; }

 private:
  // Lets the wire wake the buffer while it is waited for.
  class Waiting {
   public:
    Waiting(GlooWire& wire, ::gloo::transport::UnboundBuffer* buffer) : wire_(wire) {
      const std::lock_guard lock(wire_.mutex_);
      place_ = wire_.waiting_.insert(buffer);
    }
    ~Waiting() {
      const std::lock_guard lock(wire_.mutex_);
      wire_.waiting_.erase(place_);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    GlooWire& wire_;
    std::multiset<::gloo::transport::UnboundBuffer*>::iterator place_;
  };

  void start(void* data, int64_t bytes, int peer, bool is_send) {
    // A buffer belongs to one address and may hold an abort of an earlier wait.
    buffer_ = wire_->context_->createUnboundBuffer(data, static_cast<size_t>(bytes));
    peer_ = peer;
    is_send_ = is_send;
    reason_.clear();
  }

  template <typename F>
  void run(F&& body) {
    try {
      body();
    } catch (const std::exception& e) {
      reason_ = e.what();
    }
  }

  std::shared_ptr<GlooWire> wire_;
  std::unique_ptr<::gloo::transport::UnboundBuffer> buffer_;
  int peer_ = -1;
  bool is_send_ = false;
  std::string reason_;
};

std::unique_ptr<Wire::Operation> GlooWire::make_operation() {
  return std::make_unique<GlooOperation>(shared_from_this());
}

}  // namespace

std::shared_ptr<Wire> make_gloo_wire(const GlooOptions& options, Store& store, JobState& job) {
  return std::make_shared<GlooWire>(options, store, job);
}

}  // namespace tessera::comm
