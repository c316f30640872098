#include "tessera/train/modes/stages/server_exchange.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/comm/job_state.h"

namespace tessera::train {
namespace {

constexpr const char* kAsks = "message to a parameter server";
constexpr const char* kAnswers = "reply of a parameter server";

void send_bytes(comm::Communicator& pair, std::span<const std::byte> bytes, int to, const char* who) {
  pair.send(bytes.data(), static_cast<int64_t>(bytes.size()), DType::kU8, to, who);
}

std::vector<std::byte> receive_bytes(comm::Communicator& pair, int64_t count, int from, const char* who) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  pair.receive(bytes.data(), count, DType::kU8, from, who);
  return bytes;
}

}  // namespace

ServerExchange::ServerExchange(cluster::Context& context, const mesh::StageRanks& ranks)
    : context_(context), ranks_(ranks), num_exceptions_(std::uncaught_exceptions()) {
  for (const int server : ranks_.ranks_of(0)) {
    std::vector<int> senders = ranks_.ranks_of(1);
    if (server != ranks_.first(0)) senders.push_back(ranks_.first(0));
    for (const int sender : senders) {
      const auto group = context_.new_group_name(fmt::format("server {} for rank {}", server, sender));
      links_.push_back({group, context_.create_group(group, {sender, server}), sender, server});
    }
  }
  for (Link& link : links_) {
    if (link.server != context_.rank()) continue;
    deadline_ms_ = link.pair->wait_without_deadline();
    link.pair->share_core();
    threads_.start("what a rank asks of this parameter server", [this, &link] { listen(link); });
  }
}

ServerExchange::~ServerExchange() { close(); }

void ServerExchange::close() {
  if (std::exchange(is_closed_, true)) return;
  const bool has_failed = std::uncaught_exceptions() > num_exceptions_;
  const int rank = context_.rank();
  for (Link& link : links_) {
    if (link.sender != rank || has_failed) continue;
    try {
      const Head end;
      send_bytes(*link.pair, std::as_bytes(std::span(&end, 1)), 1, kAsks);
    } catch (const std::exception&) {  // the server has failed, and says why
    }
  }
  if (ranks_.stage_of(rank) == 0) {
    bool is_own_failure = has_failed;
    {
      const std::lock_guard lock(mutex_);
      is_closing_ = true;
      is_own_failure = has_failed && !error_;
    }
    changed_.notify_all();
    // The threads wait for workers, who wait for replies: they must hear of it before what failed is told.
    if (is_own_failure) context_.abort(fmt::format("parameter server {} has failed", rank));
    threads_.join();
  }
  for (const Link& link : links_) context_.destroy_group(link.group);
}

void ServerExchange::put(Message message) {
  {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
  }
  changed_.notify_all();
}

void ServerExchange::listen(Link& link) {
  try {
    while (true) {
      Message message;
      const auto head = receive_bytes(*link.pair, sizeof(Head), 0, kAsks);
      std::copy(head.begin(), head.end(), std::as_writable_bytes(std::span(&message.head, 1)).begin());
      const bool is_order = message.head.kind == Kind::kApply;
      message.worker = is_order ? static_cast<int>(message.head.worker) : worker_of(link.sender);
      if (message.head.bytes > 0) message.body = receive_bytes(*link.pair, message.head.bytes, 0, kAsks);
      const Kind kind = message.head.kind;
      put(std::move(message));
      if (kind == Kind::kEnd || (kind == Kind::kPull && !send_reply(link))) return;
    }
  } catch (const std::exception&) {
    {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

// False where there will be none.
bool ServerExchange::send_reply(Link& link) {
  std::vector<std::byte> body;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return link.reply || is_closing_; });
    if (!link.reply) return false;
    body = std::move(*link.reply);
    link.reply.reset();
  }
  send_bytes(*link.pair, body, 0, kAnswers);
  return true;
}

ServerExchange::Link& ServerExchange::link_to(int server) {
  const auto found = std::ranges::find_if(
      links_, [&](const Link& link) { return link.sender == context_.rank() && link.server == server; });
  check(found != links_.end(), "a rank sends to a server that listens to it");
  return *found;
}

void ServerExchange::send(int server, Head head, std::span<const std::byte> body) {
  comm::Communicator& pair = *link_to(server).pair;
  head.bytes = static_cast<int64_t>(body.size());
  send_bytes(pair, std::as_bytes(std::span(&head, 1)), 1, kAsks);
  if (!body.empty()) send_bytes(pair, body, 1, kAsks);
}

std::vector<std::byte> ServerExchange::receive_reply(int server, int64_t bytes) {
  return receive_bytes(*link_to(server).pair, bytes, 1, kAnswers);
}

ServerExchange::Message ServerExchange::take(const std::function<std::string()>& waits_for) {
  std::unique_lock lock(mutex_);
  const auto has_come = [&] { return !messages_.empty() || error_; };
  if (!changed_.wait_for(lock, std::chrono::milliseconds(deadline_ms_), has_come)) {
    throw comm::PeerSilence(fmt::format("parameter server {}: no worker sent anything for {} ms; {}", context_.rank(),
                                        deadline_ms_, waits_for()));
  }
  if (error_) std::rethrow_exception(error_);
  Message message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

void ServerExchange::reply(int worker, std::vector<std::byte> body) {
  {
    const std::lock_guard lock(mutex_);
    const auto link = std::ranges::find_if(links_, [&](const Link& each) {
      return each.server == context_.rank() && each.sender == ranks_.first(1) + worker;
    });
    link->reply = std::move(body);
  }
  changed_.notify_all();
}

}  // namespace tessera::train
