// ServerExchange: the messages between workers and parameter servers that do not wait for all workers. They are no
// collectives of the schedule, so the order that ranks compare before the first step says nothing of them: each worker
// has a group of its own with each server, whose thread for that worker takes what comes and hands it to the rank's own
// thread. The first server has one with each other server, too, which it tells the order of updates.
//
// Made and ended by all ranks together. Between two messages a worker may be silent for as long as it lives.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/thread.h"
#include "tessera/cluster/ranks/context.h"
#include "tessera/mesh/stage_ranks.h"

namespace tessera::train {

class ServerExchange {
 public:
  enum class Kind : int64_t {
    kPull,   // a worker asks for values, and waits for the reply
    kPush,   // a worker gives its gradients
    kApply,  // the first server says whose push is applied next
    kStop,   // a worker's callback has stopped its training
    kEnd,    // nothing more comes
  };
  // Travels between processes: plain bytes.
  struct Head {
    Kind kind = Kind::kEnd;
    int64_t step = 0;   // of the worker, from 1
    int64_t graph = 0;  // the number of the training graph that the body belongs to
    int64_t rows = 0;   // of the worker's part of the batch
    double loss = 0;
    int64_t worker = 0;    // kApply: whose push
    int64_t training = 0;  // kStop: which of the model's trainings, from 1
    int64_t bytes = 0;     // of the body
  };
  struct Message {
    Head head;
    int worker = 0;  // that it is from, or whose push is meant; negative for the end of the first server
    std::vector<std::byte> body;
  };

  // Stage 0 has the servers, stage 1 the workers. Collective.
  ServerExchange(cluster::Context& context, const mesh::StageRanks& ranks);
  // Does what close() does.
  ~ServerExchange();
  ServerExchange(const ServerExchange&) = delete;
  ServerExchange& operator=(const ServerExchange&) = delete;

  // Ends the messages: waits on a server until the workers have come here, or the job has failed.
  void close();

  // Is called by a worker, and for kApply by the first server. Returns when the server has the message.
  void send(int server, Head head, std::span<const std::byte> body);
  // The reply to a pull, of so many bytes.
  std::vector<std::byte> receive_reply(int server, int64_t bytes);

  // Of a server: the next message. Throws what ended a connection; PeerSilence, with what `waits_for` says, where
  // nothing comes before the job's deadline.
  Message take(const std::function<std::string()>& waits_for);
  void reply(int worker, std::vector<std::byte> body);

 private:
  struct Link {
    std::string group;
    comm::Communicator* pair = nullptr;  // rank 0 of it sends to rank 1, a server
    int sender = 0;                      // world ranks
    int server = 0;
    std::optional<std::vector<std::byte>> reply = std::nullopt;
  };
  void listen(Link& link);
  bool send_reply(Link& link);
  void put(Message message);
  Link& link_to(int server);
  int worker_of(int rank) const { return rank - ranks_.first(1); }

  cluster::Context& context_;
  mesh::StageRanks ranks_;
  int num_exceptions_;
  int64_t deadline_ms_ = 0;
  std::deque<Link> links_;  // of this rank, or without a pair
  std::mutex mutex_;
  std::condition_variable changed_;  // guarded by the mutex: what follows, and the links' replies
  std::deque<Message> messages_;
  std::exception_ptr error_;
  bool is_closing_ = false;
  bool is_closed_ = false;
  ThreadGroup threads_;
};

}  // namespace tessera::train
