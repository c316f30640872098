// ServerExchange: the messages between workers and parameter servers that do not wait for all workers. They are no
// collectives of the schedule, so the order that ranks compare before the first step says nothing of them: each worker
// has a group of its own with each server, whose thread for that worker takes what comes and hands it to the rank's own
// thread. The first server has one with each other server, too, which it tells the order of updates.
//
// Made and ended by all ranks together. Between two messages a worker may be silent for as long as it lives. A server
// takes nothing that is not a message of a training, or larger than one: what it refuses ends the job with the
// sender's name.
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
    kMeet,   // a worker has come to a call that all ranks make together, and waits for the reply
    kApply,  // the first server says whose push is applied next
    kStop,   // a worker's callback has stopped its training
    kEnd,    // nothing more comes
    // Of a server, to a worker that waits for a reply.
    kGoesOn,  // not yet: other workers go on
    kReply,
  };
  // Travels between processes: plain bytes.
  struct Head {
    Kind kind = Kind::kEnd;
    int64_t step = 0;   // of the worker, from 1; kMeet: that it has done
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
  // What a worker sends that belongs to a training graph, in bytes.
  struct Sizes {
    int64_t most_pulled = 0;  // of a pull's body
    int64_t pushed = 0;       // of a push's
  };
  // Whom a server waits for, in words of its own: `worker 1 has done 7 steps, step 8 is waited for`.
  struct Awaited {
    int rank = 0;  // of the world
    int64_t step = 0;
    std::string words;
  };

  // Stage 0 has the servers, stage 1 the workers. Collective.
  ServerExchange(cluster::Context& context, const mesh::StageRanks& ranks);
  // Does what close() does.
  ~ServerExchange();
  ServerExchange(const ServerExchange&) = delete;
  ServerExchange& operator=(const ServerExchange&) = delete;

  // Ends the messages: waits on a server until the workers have come here, or the job has failed. Where workers train
  // on that a server has left, or an exception ends it, the job hears of that.
  void close();
  // This rank's training has failed by this exception, which is what the job hears where close() tells it.
  void note_failure(const std::exception_ptr& failure);

  // Is called by a worker, and for kApply by the first server. Returns when the server has the message.
  void send(int server, Head head, std::span<const std::byte> body);
  // The reply to a pull, or to kMeet, of so many bytes. While other workers go on a worker waits for it beyond the
  // job's deadline.
  std::vector<std::byte> receive_reply(int server, int64_t bytes);

  // Of a server: what the workers, one after the other, send of the training graph that has this number: that which
  // follows on those that were told before.
  void allow(int64_t graph, std::vector<Sizes> sizes);
  // Of a server: the next message. Throws what ended a connection; PeerSilence, with what `awaited` says, where
  // nothing comes before the job's deadline. What it waits for is known to others as any other wait is.
  Message take(const std::function<Awaited()>& awaited);
  void reply(int worker, std::vector<std::byte> body);
  // Workers that wait for a reply hear that others go on, as often as they need it.
  void tell_waiting();

 private:
  struct Link {
    std::string group;
    comm::Communicator* pair = nullptr;  // rank 0 of it sends to rank 1, a server
    int sender = 0;                      // world ranks
    int server = 0;
    std::optional<std::vector<std::byte>> reply = std::nullopt;
    bool is_asked = false;  // a reply is waited for
    bool must_tell = false;
    int64_t told_ms = 0;  // when the sender heard last
  };
  struct Wait;

  void close_server(bool has_failed);
  bool has_job_failed() const;
  void listen(Link& link);
  void require_allowed(const Link& link, const Head& head);
  bool send_reply(Link& link, const Head& head);
  void put(Message message);
  void note_late(int worker, const Head& head);
  Link& link_to(int server);
  Link& link_from(int sender);
  int worker_of(int rank) const { return rank - ranks_.first(1); }
  int64_t now_ms() const { return context_.clock().monotonic_ns() / 1'000'000; }

  cluster::Context& context_;
  mesh::StageRanks ranks_;
  int num_exceptions_;
  int64_t deadline_ms_ = 0;
  std::deque<Link> links_;  // of this rank, or without a pair
  struct Failure {
    int origin = 0;
    std::string words;
  };
  std::optional<Failure> failure_;
  std::mutex mutex_;
  std::condition_variable changed_;  // guarded by the mutex: what follows, and the links' replies
  std::deque<Message> messages_;
  std::vector<std::vector<Sizes>> allowed_;  // by graph and worker
  std::exception_ptr error_;
  int num_listening_ = 0;
  bool is_closing_ = false;
  std::string late_;  // what a worker has asked for that comes too late
  bool is_closed_ = false;
  ThreadGroup threads_;
};

}  // namespace tessera::train
