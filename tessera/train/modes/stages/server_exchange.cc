#include "tessera/train/modes/stages/server_exchange.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/cluster/ranks/rank_words.h"
#include "tessera/comm/job_state.h"
#include "tessera/comm/transport.h"
#include "tessera/comm/watched_wait.h"

namespace tessera::train {
namespace {

constexpr const char* kAsks = "message to a parameter server";
constexpr const char* kAnswers = "reply of a parameter server";
constexpr const char* kUpdates = "updates by a parameter server";

// A server looks at a long wait so often.
constexpr int64_t kLookMs = 100;
// Who waits for a reply hears so often that others go on: before its wait is spoken of, and long before its deadline.
constexpr int64_t kTellMs = 400;
constexpr int64_t kTellsPerDeadline = 16;

void send_bytes(comm::Communicator& pair, std::span<const std::byte> bytes, int to, const char* who) {
  pair.send(bytes.data(), static_cast<int64_t>(bytes.size()), DType::kU8, to, who);
}

std::vector<std::byte> receive_bytes(comm::Communicator& pair, int64_t count, int from, const char* who) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  pair.receive(bytes.data(), count, DType::kU8, from, who);
  return bytes;
}

void send_head(comm::Communicator& pair, const ServerExchange::Head& head, int to, const char* who) {
  send_bytes(pair, std::as_bytes(std::span(&head, 1)), to, who);
}

ServerExchange::Head receive_head(comm::Communicator& pair, int from, const char* who) {
  ServerExchange::Head head;
  const auto bytes = receive_bytes(pair, sizeof(head), from, who);
  std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(&head, 1)).begin());
  return head;
}

}  // namespace

// What a server's own thread waits for, which is no call of a group: as one for whoever asks or reads reports.
struct ServerExchange::Wait {
  Wait(const ServerExchange& exchange, const Link& link, Awaited awaited_rank)
      : awaited(std::move(awaited_rank)),
        group{.name = link.group, .number = 0, .part = 0, .rank = 1, .ranks = {link.sender, link.server}},
        job(*link.pair->job()),
        watch(call, group, 0, exchange.deadline_ms_, job) {
    call.kind = comm::CallKind::kSend;
    call.sequence = static_cast<uint64_t>(awaited.step);
    call.set_who(kUpdates);
  }

  Awaited awaited;
  comm::CallHeader call;
  comm::GroupInfo group;
  comm::JobState& job;
  comm::WatchedWait watch;
};

ServerExchange::ServerExchange(cluster::Context& context, const mesh::StageRanks& ranks)
    : context_(context), ranks_(ranks), num_exceptions_(std::uncaught_exceptions()) {
  for (const int server : ranks_.ranks_of(0)) {
    std::vector<int> senders = ranks_.ranks_of(1);
    if (server != ranks_.first(0)) senders.push_back(ranks_.first(0));
    for (const int sender : senders) {
      const auto group = context_.new_group_name(fmt::format("server {} for rank {}", server, sender));
      Link link;
      link.group = group;
      link.pair = context_.create_group(group, {sender, server});
      link.sender = sender;
      link.server = server;
      links_.push_back(std::move(link));
    }
  }
  for (Link& link : links_) {
    if (link.server != context_.rank()) continue;
    deadline_ms_ = link.pair->wait_without_deadline();
    link.pair->share_core();
    {
      const std::lock_guard lock(mutex_);
      ++num_listening_;
    }
    threads_.start("what a rank asks of this parameter server", [this, &link] { listen(link); });
  }
}

ServerExchange::~ServerExchange() { close(); }

void ServerExchange::note_failure(const std::exception_ptr& failure) {
  if (failure_) return;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    failure_ = {cluster::origin_of(failure, context_.rank()), error.what()};
  } catch (...) {  // says nothing
  }
}

void ServerExchange::close() {
  if (std::exchange(is_closed_, true)) return;
  const bool has_failed = std::uncaught_exceptions() > num_exceptions_;
  const int rank = context_.rank();
  for (Link& link : links_) {
    if (link.sender != rank || has_failed) continue;
    try {
      send_head(*link.pair, {}, 1, kAsks);
    } catch (const std::exception&) {  // the server has failed, and says why
    }
  }
  if (ranks_.stage_of(rank) == 0) close_server(has_failed);
  for (const Link& link : links_) context_.destroy_group(link.group);
}

// The threads wait for workers, who may wait for replies: these must hear of it before what failed is told.
void ServerExchange::close_server(bool has_failed) {
  std::optional<Failure> told;
  {
    std::unique_lock lock(mutex_);
    is_closing_ = true;
    for (const Message& message : messages_) note_late(message.worker, message.head);
    changed_.notify_all();
    if (has_failed && !has_job_failed()) {
      if (error_) note_failure(error_);
      const auto unknown =
          fmt::format("an exception has ended parameter server {}, which says itself what it is", context_.rank());
      told = failure_.value_or(Failure{context_.rank(), unknown});
    } else if (!has_failed) {
      changed_.wait(lock, [&] { return num_listening_ == 0 || !late_.empty() || error_; });
      if (!late_.empty() && !has_job_failed()) told = Failure{context_.rank(), late_};
    }
  }
  if (told) context_.abort(told->origin, told->words);
  threads_.join();
}

bool ServerExchange::has_job_failed() const {
  return std::ranges::any_of(links_,
                             [](const Link& link) { return link.pair != nullptr && link.pair->job()->failed(); });
}

// With the mutex held.
void ServerExchange::note_late(int worker, const Head& head) {
  const bool needs_this = head.kind == Kind::kPull || head.kind == Kind::kPush || head.kind == Kind::kMeet;
  if (!needs_this || !late_.empty()) return;
  const int rank = context_.rank();
  late_ = fmt::format(
      "parameter server {} (rank {}) has ended while worker {} (rank {}) trains on, after {} steps: every rank must "
      "make the same calls, of train, eval, predict or save, in the same order",
      rank, rank, worker, ranks_.first(1) + worker, head.kind == Kind::kPull ? head.step - 1 : head.step);
}

void ServerExchange::put(Message message) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closing_) note_late(message.worker, message.head);
    messages_.push_back(std::move(message));
  }
  changed_.notify_all();
}

void ServerExchange::listen(Link& link) {
  std::exception_ptr error;
  try {
    while (true) {
      Message message;
      message.head = receive_head(*link.pair, 0, kAsks);
      require_allowed(link, message.head);
      const bool is_order = message.head.kind == Kind::kApply;
      message.worker = is_order ? static_cast<int>(message.head.worker) : worker_of(link.sender);
      if (message.head.bytes > 0) message.body = receive_bytes(*link.pair, message.head.bytes, 0, kAsks);
      const Head head = message.head;
      if (head.kind == Kind::kPull || head.kind == Kind::kMeet) {
        const std::lock_guard lock(mutex_);
        link.is_asked = true;
        link.told_ms = now_ms();
      }
      put(std::move(message));
      const bool must_reply = head.kind == Kind::kPull || head.kind == Kind::kMeet;
      if (head.kind == Kind::kEnd || (must_reply && !send_reply(link, head))) break;
    }
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    if (error && !error_) error_ = error;
    --num_listening_;
  }
  changed_.notify_all();
}

// Before room is made for the body.
void ServerExchange::require_allowed(const Link& link, const Head& head) {
  const auto refuse = [&](const std::string& what) {
    throw comm::PeerFailure(
        link.sender,
        fmt::format("parameter server {}: rank {} has sent {}, which is no message of this training: do all "
                    "ranks run the same program, of one version of Tessera?",
                    context_.rank(), link.sender, what));
  };
  const bool is_of_server = ranks_.stage_of(link.sender) == 0;
  const auto kind = static_cast<int64_t>(head.kind);
  const bool may_be = is_of_server ? head.kind == Kind::kApply || head.kind == Kind::kEnd
                                   : kind >= 0 && kind <= static_cast<int64_t>(Kind::kEnd) && head.kind != Kind::kApply;
  if (!may_be) refuse(fmt::format("a message of kind {}", kind));
  if (head.kind != Kind::kPull && head.kind != Kind::kPush) {
    if (head.bytes != 0) refuse(fmt::format("{} bytes in a message of kind {}, which has none", head.bytes, kind));
    const bool is_worker = head.worker >= 0 && head.worker < ranks_.count(1);
    if (is_of_server && !is_worker) refuse(fmt::format("the number {} of a worker", head.worker));
    return;
  }
  std::unique_lock lock(mutex_);
  // The graph that comes next may be compiled already where the message is from.
  const auto num_known = static_cast<int64_t>(allowed_.size());
  if (head.graph < 0 || head.graph > num_known) {
    refuse(fmt::format("a message of training graph {}, of which there are {}", head.graph, num_known));
  }
  changed_.wait(lock,
                [&] { return head.graph < static_cast<int64_t>(allowed_.size()) || is_closing_ || has_job_failed(); });
  if (head.graph >= static_cast<int64_t>(allowed_.size())) {
    note_late(worker_of(link.sender), head);
    refuse(fmt::format("a message of training graph {}, which this rank has never had", head.graph));
  }
  const auto worker = static_cast<size_t>(worker_of(link.sender));
  const Sizes& sizes = allowed_[static_cast<size_t>(head.graph)][worker];
  const bool is_pull = head.kind == Kind::kPull;
  const int64_t most = is_pull ? sizes.most_pulled : sizes.pushed;
  if (head.bytes < 0 || head.bytes > most || (!is_pull && head.bytes != most)) {
    refuse(fmt::format("{} bytes where {}{} are expected", head.bytes, is_pull ? "at most " : "", most));
  }
}

// False where there will be none.
bool ServerExchange::send_reply(Link& link, const Head& head) {
  std::vector<std::byte> body;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return link.reply || link.must_tell || is_closing_; });
      if (!link.reply && is_closing_) {
        note_late(worker_of(link.sender), head);
        return false;
      }
      if (link.reply) {
        body = std::move(*link.reply);
        link.reply.reset();
        link.is_asked = link.must_tell = false;
        break;
      }
      link.must_tell = false;
    }
    send_head(*link.pair, {.kind = Kind::kGoesOn}, 0, kAnswers);
  }
  send_head(*link.pair, {.kind = Kind::kReply, .bytes = static_cast<int64_t>(body.size())}, 0, kAnswers);
  if (!body.empty()) send_bytes(*link.pair, body, 0, kAnswers);
  return true;
}

ServerExchange::Link& ServerExchange::link_to(int server) {
  const auto found = std::ranges::find_if(
      links_, [&](const Link& link) { return link.sender == context_.rank() && link.server == server; });
  check(found != links_.end(), "a rank sends to a server that listens to it");
  return *found;
}

ServerExchange::Link& ServerExchange::link_from(int sender) {
  const auto found = std::ranges::find_if(
      links_, [&](const Link& link) { return link.sender == sender && link.server == context_.rank(); });
  check(found != links_.end(), "a server waits for a rank that it listens to");
  return *found;
}

void ServerExchange::send(int server, Head head, std::span<const std::byte> body) {
  comm::Communicator& pair = *link_to(server).pair;
  head.bytes = static_cast<int64_t>(body.size());
  send_head(pair, head, 1, kAsks);
  if (!body.empty()) send_bytes(pair, body, 1, kAsks);
}

std::vector<std::byte> ServerExchange::receive_reply(int server, int64_t bytes) {
  comm::Communicator& pair = *link_to(server).pair;
  Head head{.kind = Kind::kGoesOn};
  while (head.kind == Kind::kGoesOn) head = receive_head(pair, 1, kAnswers);
  if (head.kind != Kind::kReply || head.bytes != bytes) {
    throw comm::PeerFailure(
        server,
        fmt::format("rank {}: parameter server {} has sent {} bytes in a message of kind {} where a reply of {} "
                    "bytes is expected: do all ranks run the same program, of one version of Tessera?",
                    context_.rank(), server, head.bytes, static_cast<int64_t>(head.kind), bytes));
  }
  return bytes == 0 ? std::vector<std::byte>() : receive_bytes(pair, bytes, 1, kAnswers);
}

void ServerExchange::allow(int64_t graph, std::vector<Sizes> sizes) {
  {
    const std::lock_guard lock(mutex_);
    check_equal(graph, static_cast<int64_t>(allowed_.size()), "the number of the next training graph");
    check_equal(static_cast<int>(sizes.size()), ranks_.count(1), "workers of a training graph");
    allowed_.push_back(std::move(sizes));
  }
  changed_.notify_all();
}

ServerExchange::Message ServerExchange::take(const std::function<Awaited()>& awaited) {
  std::optional<Wait> wait;
  const auto begin_wait = [&] {
    if (wait) return;
    auto rank = awaited();
    const Link& link = link_from(rank.rank);
    wait.emplace(*this, link, std::move(rank));
  };
  const int64_t began_ms = now_ms();
  std::unique_lock lock(mutex_);
  const auto has_come = [&] { return !messages_.empty() || error_; };
  while (!changed_.wait_for(lock, std::chrono::milliseconds(std::min(kLookMs, deadline_ms_)), has_come)) {
    // Others are asked what they do meanwhile.
    lock.unlock();
    const int64_t waited_ms = now_ms() - began_ms;
    begin_wait();
    wait->watch.look(waited_ms);
    lock.lock();
    if (has_come()) break;
    if (waited_ms >= deadline_ms_) comm::throw_late(wait->call, wait->group, 0, waited_ms, wait->awaited.words);
  }
  if (error_) {
    const auto error = error_;
    lock.unlock();
    begin_wait();
    // Of whichever thread that error is: what this rank has waited for says more.
    if (wait->job.failed()) comm::throw_peer_failure(wait->call, wait->group, wait->job);
    std::rethrow_exception(error);
  }
  Message message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

void ServerExchange::reply(int worker, std::vector<std::byte> body) {
  {
    const std::lock_guard lock(mutex_);
    link_from(ranks_.first(1) + worker).reply = std::move(body);
  }
  changed_.notify_all();
}

void ServerExchange::tell_waiting() {
  const int64_t now = now_ms();
  bool must_tell = false;
  {
    const std::lock_guard lock(mutex_);
    for (Link& link : links_) {
      const bool is_due = now - link.told_ms >= std::min(kTellMs, deadline_ms_ / kTellsPerDeadline);
      if (!link.is_asked || link.reply || !is_due) continue;
      link.told_ms = now;
      link.must_tell = must_tell = true;
    }
  }
  if (must_tell) changed_.notify_all();
}

}  // namespace tessera::train
